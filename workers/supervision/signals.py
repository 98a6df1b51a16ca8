"""Signals of the supervisor as something its loop reads: a socket carries their numbers."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Generator
from types import FrameType, TracebackType
from typing import Final, Self

STOP: Final = frozenset({signal.SIGTERM, signal.SIGINT})
DUMP_STACKS: Final = frozenset({signal.SIGUSR1, signal.SIGTTIN})
HANGUP: Final = signal.SIGHUP
HANDLED: Final = STOP | DUMP_STACKS | {HANGUP, signal.SIGCHLD}

_Handler = Callable[[int, FrameType | None], object] | int | signal.Handlers | None


class SignalInbox:
    """
    While entered, collects the signals in ``HANDLED``; then ``STOP`` and ``HANGUP`` are ignored. Main thread only.

    Nothing is ever raised from a handler, so no statement of the supervisor can be torn apart by one.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._previous: dict[int, _Handler] = {}
        self._previous_fd = -1

    def __enter__(self) -> Self:
        self._previous_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in HANDLED:
            self._previous[number] = signal.signal(number, _ignore)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            # The process is about to end in good order: one more request to stop must not change its exit code.
            leaving = signal.SIG_IGN if number in STOP or number == HANGUP else handler
            signal.signal(number, signal.SIG_DFL if leaving is None else leaving)
        signal.set_wakeup_fd(self._previous_fd)
        self.close()

    def fileno(self) -> int:
        """Readable when a signal has arrived."""
        return self._reader.fileno()

    def read(self) -> list[signal.Signals]:
        """The signals that arrived since the last call, in order."""
        numbers = b""
        with contextlib.suppress(BlockingIOError):
            while chunk := self._reader.recv(4096):
                numbers += chunk
        return [signal.Signals(number) for number in numbers if number in HANDLED]

    def close(self) -> None:
        """Close the sockets; also what a forked child does with its copies."""
        self._reader.close()
        self._writer.close()


def hangup_stops() -> bool:
    """
    Whether SIGHUP says that the terminal is closed: there is one, and nobody (``nohup``) had it ignored.

    To be asked before an inbox is entered.
    """
    return signal.getsignal(HANGUP) is not signal.SIG_IGN and any(map(os.isatty, (0, 2)))  # stdin, stderr


@contextlib.contextmanager
def held() -> Generator[None]:
    """
    Keep the handled signals pending meanwhile.

    Between a fork and the moment the child has let go of the parent's wakeup socket, a signal for the child
    would be written into that shared socket and read by the parent as its own.
    """
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def forget_handlers() -> None:
    """In a new process: default handling of what its supervisor handled, and no wakeup socket."""
    signal.set_wakeup_fd(-1)
    for number in HANDLED:
        signal.signal(number, signal.SIG_DFL)
    # Ctrl-C is the supervisor's matter; the others must not kill or stop before their handlers are there.
    for number in (signal.SIGINT, *DUMP_STACKS):
        signal.signal(number, signal.SIG_IGN)


def release_held() -> None:
    """In a new process: let signals come again that were held around its birth."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """The number is already in the wakeup socket: the interpreter wrote it when the signal arrived."""
