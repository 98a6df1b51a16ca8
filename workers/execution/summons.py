"""What may call an executor away from what it does: messages of its supervisor, and signals."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from types import FrameType

from envq.workers.execution.claims import Readable
from envq.workers.execution.deadline import Deadlines


class Summons:
    """
    Signals and the supervisor's pipe, installed in the main thread when it is made.

    Attributes:
        stopping: told to stop, or left alone by the supervisor
        register: told to write its records again, which Redis has lost; whoever does it resets it
        renew: told to have itself replaced
    """

    def __init__(self, control: Connection, deadlines: Deadlines, become_copy: Callable[[], None]) -> None:
        self.stopping = False
        self.register = False
        self.renew = False
        self._control = control
        self._deadlines = deadlines
        self._copied = become_copy
        self._held = threading.local()
        self._bell, self._rope = socket.socketpair()
        self._bell.setblocking(False)
        self._rope.setblocking(False)
        self._news = select.poll()
        for caller in self.callers:
            self._news.register(caller.fileno(), select.POLLIN)
        self._install()

    @property
    def callers(self) -> Sequence[Readable]:
        """What becomes readable when somebody calls."""
        return self._control, self._bell

    def listen(self) -> None:
        """Let signals ring, before a wait: event loops of jobs take that away."""
        signal.set_wakeup_fd(self._rope.fileno(), warn_on_full_buffer=False)

    def say(self, message: bytes) -> None:
        """Tell the supervisor; raises OSError where it is gone."""
        self._control.send_bytes(message)

    def pause(self, seconds: float) -> None:
        """Wait, unless the supervisor has something to say."""
        self._control.poll(seconds)

    def heed(self) -> bool:
        """Read what the supervisor said; True to stop. A closed pipe means it is gone: never outlive it."""
        if not self._news.poll(0):
            return self.stopping
        try:
            while self._control.poll():
                message = self._control.recv_bytes()
                self.stopping = self.stopping or message == b"stop"
                self.register = self.register or message == b"register"
                self.renew = self.renew or message == b"renew"
        except (EOFError, OSError):
            self.stopping = True
        self._drain_bell()
        return self.stopping

    def _drain_bell(self) -> None:
        try:
            while self._bell.recv(4096):
                pass
        except BlockingIOError:
            pass

    def _install(self) -> None:
        self.listen()
        self._deadlines.install()
        signal.signal(signal.SIGTERM, self._on_stop)
        # Ctrl-C goes to the supervisor, which asks us. A handler, because programs that jobs start would inherit
        # SIG_IGN, and many are ended with SIGINT.
        signal.signal(signal.SIGINT, _ignore)
        self._deadlines.note_handlers()
        os.register_at_fork(before=self._hold, after_in_parent=self._release, after_in_child=self._become_copy)

    def _hold(self) -> None:
        """A signal for a process that is just being forked waits until our handlers are no longer its own."""
        self._held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))

    def _release(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._held.mask)

    def _become_copy(self) -> None:
        """In a process that a job forks (multiprocessing, say): it is told to end by signals."""
        signal.set_wakeup_fd(-1)
        if signal.getsignal(signal.SIGTERM) == self._on_stop:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) is _ignore:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._copied()
        self._release()

    def _on_stop(self, _signum: int, frame: FrameType | None) -> None:
        self.stopping = True
        self._deadlines.break_off_build(frame, "the worker stops")


def _ignore(_signum: int, _frame: FrameType | None) -> None:
    """Nothing."""
