"""A forked copy of this executor, in which one job runs: on the variables as they are, of which it has its own."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from envq.workers.slot import Interrupt, Slot
from envq.workers.watchman import Watchman

LOOK_S: Final = 0.2  # between two looks at the copy's clock, and at whether it lives where no descriptor tells
_LENGTH: Final = struct.Struct("!Q")
_PR_SET_PDEATHSIG: Final = 1
_CHUNK: Final = 1 << 20


@dataclass(frozen=True)
class Ended:
    """A copy that is gone; ``message`` is None where it died before it could tell how its job ended."""

    pid: int
    message: bytes | None
    exit_code: int  # -N: signal N killed it
    peak_mib: int
    overdue: bool  # it was killed because it did not keep to a limit of its own
    read: tuple[str, ...] = ()  # variables its job had read


class Copy:
    """
    One forked process, watched by the executor that it was forked from.

    Args:
        work: runs in the copy; what it returns is the message
        slot: the executor's own, which the copy goes on writing: into ``watched`` from then on
        grace_s: from a limit that the copy does not keep to its end by force
        watchman: kills the copy's group where the executor dies before it
    """

    def __init__(
        self, work: Callable[[], bytes], slot: Slot, watched: Slot, grace_s: float, watchman: Watchman
    ) -> None:
        self._watched = watched
        self._grace_s = grace_s
        self._watchman = watchman
        self._received = bytearray()
        watched.clear()
        for stream in (sys.stdout, sys.stderr):  # or both processes would write what is waiting there
            with contextlib.suppress(Exception):
                stream.flush()
        self._pipe, writing = os.pipe()
        starting, go = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            for descriptor in (self._pipe, go):
                os.close(descriptor)
            watchman.forget()
            slot.move_to(watched)
            _run(work, writing, starting, parent)
        os.close(writing)
        os.close(starting)
        with contextlib.suppress(OSError):
            os.setpgid(self.pid, self.pid)  # the copy does the same; whoever comes first
        watchman.add(self.pid)
        os.close(go)  # only now may the job start anything
        os.set_blocking(self._pipe, False)
        self._poll = select.poll()
        self._poll.register(self._pipe, select.POLLIN)
        self._life = _descriptor_of(self.pid)
        if self._life >= 0:
            self._poll.register(self._life, select.POLLIN)

    def ask_to_stop(self, job_id: str) -> None:
        """Have the job broken off by an exception."""
        self._watched.ask(Interrupt.STOP_JOB, job_id)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)

    def wait(self, at_most_s: float = math.inf) -> Ended:
        """Until it has told how its job ended, or died; kills it, with all that it started."""
        until, overdue = time.monotonic() + at_most_s, False
        while not self._is_told() and not overdue:
            ready = self._poll.poll(LOOK_S * 1000)
            self._receive()
            if not ready or any(fd == self._life for fd, _ in ready):
                if self._has_ended():
                    self._receive()
                    break
                overdue = self._is_overdue() or time.monotonic() >= until
        return self._end(overdue)

    def _is_told(self) -> bool:
        if len(self._received) < _LENGTH.size:
            return False
        (length,) = _LENGTH.unpack_from(self._received)
        return len(self._received) >= _LENGTH.size + length

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while not self._is_told() and (chunk := os.read(self._pipe, _CHUNK)):
                self._received += chunk

    def _has_ended(self) -> bool:
        """It is left to be waited for: until then its group's number is given to no other process."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _is_overdue(self) -> bool:
        deadline = self._watched.read().deadline
        return bool(deadline) and time.monotonic() >= deadline + self._grace_s

    def _end(self, overdue: bool) -> Ended:
        told = self._is_told()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._watchman.remove(self.pid)  # while its number is given to nobody else
        _, status, used = os.wait4(self.pid, 0)
        for descriptor in (self._pipe, self._life):
            if descriptor >= 0:
                os.close(descriptor)
        message = bytes(self._received[_LENGTH.size :]) if told else None
        read = self._watched.variables_read(self._watched.read())
        return Ended(
            self.pid, message, os.waitstatus_to_exitcode(status), _mib(used.ru_maxrss), overdue and not told, read
        )


def _run(work: Callable[[], bytes], writing: int, starting: int, parent: int) -> None:
    """The rest of the copy's life; what Python does at the end of a process is left to the executor."""
    code = 1
    try:
        os.setpgid(0, 0)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.read(starting, 1)  # ends when the watchman knows this group, or the executor is gone
        os.close(starting)
        if os.getppid() == parent:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
            message = work()
            _write(writing, _LENGTH.pack(len(message)) + message)
            code = 0
    except BaseException:  # noqa: BLE001 - it must not go on as a second executor
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):
                stream.flush()
        os._exit(code)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _descriptor_of(pid: int) -> int:
    """Becomes readable when the process ends; -1 where the system has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def _mib(ru_maxrss: int) -> int:
    return ru_maxrss // (1024 * 1024 if sys.platform == "darwin" else 1024)  # bytes there, KiB elsewhere
