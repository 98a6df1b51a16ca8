"""Time limits on an executor's main thread, and interruptions asked for from outside.

Limits nest: while an inner one runs (a variable is built inside a job) the outer clock stands still. The
innermost limit is also written into the shared slot, so that the supervisor can kill what does not yield.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import time
import traceback

# What signal.getsignal asks, before it looks for a name of the answer.
from _signal import getsignal as _handler_of  # type: ignore[import] # pyright: ignore
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final, NamedTuple, NoReturn

from envq.errors import JobStopRequested
from envq.runtime import TimeLimit
from envq.workers.slot import Interrupt, Phase, Slot

REPEAT_S: Final = 1.0  # user code may swallow the first exception; it is raised again so often
_SOON_S: Final = 0.005
_OURS: Final = (signal.SIGALRM, signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)
_RUNTIME: Final = "envq.runtime."
_CALLS_USERS: Final = "envq.runtime.calling"
_BOOKKEEPING: Final = frozenset(
    {
        __name__,
        Slot.__module__,
        "envq.environment",
        "envq.workers.execution.memory",
        "envq.workers.execution.quarantine",
        "envq.workers.execution.reporting",
        "envq.workers.execution.scope",
    }
)


Error = BaseException | Callable[[], BaseException]


class Work(NamedTuple):
    """What is being limited, as the slot shows it."""

    phase: Phase
    subject: str
    detail: str = ""


class Deadlines:
    """The stack of limits in force; one per executor, main thread only."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self.stack: list[Limit] = []  # those in force, the innermost last
        self._outside = slot.now  # what goes on when no limit is in force any more
        self._handlers: list[tuple[int, Any]] = []
        self._struck = False
        # The same objects each time: whether a job has changed them is told by identity.
        self._alarm, self._request = self._on_alarm, self._on_request
        self.after_strike: Callable[[], None] = _nothing  # called once the block in which an error was raised is left

    def disarm(self) -> None:
        """Leave no timer behind."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def install(self) -> None:
        """Take SIGALRM for the clock and SIGUSR1 for requests of the supervisor."""
        signal.signal(signal.SIGALRM, self._alarm)
        signal.signal(signal.SIGUSR1, self._request)

    def note_handlers(self) -> None:
        """What handles our signals now is what ``take_back`` restores."""
        self._handlers = [(int(number), _handler_of(number)) for number in _OURS]

    def take_back(self) -> list[str]:
        """Restore the handlers that a job has changed; the names of their signals."""
        changed: list[str] = []
        for number, handler in self._handlers:
            if _handler_of(number) is not handler:
                signal.signal(number, handler)
                changed.append(signal.Signals(number).name)
        return changed

    def limit(self, seconds: float | None, work: Work, error: Error) -> Limit:
        """
        A context in which ``error``, or what it makes, is raised after so many seconds.

        None means no limit; the context can then still be interrupted. An interval keeps raising until the
        context is left.
        """
        return Limit(self, math.inf if seconds is None else seconds, work, error)

    def push(self, limit: Limit) -> None:
        """Start a limit; the outer one's clock stops."""
        if self.stack:
            self.stack[-1].pause()
        else:
            self._outside = self._slot.now
        self.stack.append(limit)
        self._resume(limit)

    def pop(self, limit: Limit, error: BaseException | None = None) -> None:
        """
        End a limit and all that are left inside it; the outer one's clock goes on.

        All code of users runs inside one, so that here a copy of this process ends which that code has forked:
        going on, it would be a second executor of the same name.
        """
        if limit.pid != os.getpid():
            _end_copy(error)
        del self.stack[limit.depth :]
        if self._struck:
            self._struck = False
            self.after_strike()
        if self.stack:
            self._resume(self.stack[-1])
            return
        phase, subject, detail = (
            limit.work
        )  # the timer is left to find nothing in force: disarming costs as much as arming
        if phase is Phase.RUNNING or phase is Phase.STORING:
            self._slot.write(Phase.STORING, subject, detail)  # whoever dies now has run that job
        else:
            self._slot.write(*self._outside)

    @property
    def depth(self) -> int:
        """How many limits are in force."""
        return len(self.stack)

    def _resume(self, limit: Limit) -> None:
        left, (phase, subject, detail) = limit.left, limit.work
        limit.ends_at = ends_at = time.monotonic() + left
        if left < math.inf:
            self._slot.write(phase, subject, detail, ends_at)
            signal.setitimer(signal.ITIMER_REAL, left if left > _SOON_S else _SOON_S, REPEAT_S)
        else:
            self._slot.write(phase, subject, detail)
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _on_alarm(self, _signum: int, frame: FrameType | None) -> None:
        if not self.stack:
            signal.setitimer(signal.ITIMER_REAL, 0)
            return
        top = self.stack[-1]
        if time.monotonic() < top.ends_at:
            return
        self._raise(top, frame)

    def _on_request(self, _signum: int, frame: FrameType | None) -> None:
        interrupt, target = self._slot.asked()
        if not self.stack:
            return
        top = self.stack[-1].work
        if interrupt is Interrupt.CANCEL_BUILD and top.phase is Phase.BUILDING and top.subject == target:
            self._interrupt(TimeLimit(f"the build of {target} was cancelled: it is not declared any more"), frame)
        elif interrupt is Interrupt.CANCEL_OUTDATED_BUILD and top.subject == target:
            self.break_off_build(frame, "it was declared anew")
        elif interrupt is Interrupt.STOP_JOB and any(
            limit.work.phase is Phase.RUNNING and limit.work.subject == target for limit in self.stack
        ):
            self._interrupt(JobStopRequested(f"job {target} was stopped on request"), frame)

    def break_off_build(self, frame: FrameType | None, why: str) -> None:
        """End a build between jobs; one inside a job belongs to the job."""
        phases = [limit.work.phase for limit in self.stack]
        if phases and phases[-1] is Phase.BUILDING and Phase.RUNNING not in phases:
            self._interrupt(TimeLimit(f"the build was broken off: {why}"), frame)

    def _interrupt(self, error: BaseException, frame: FrameType | None) -> None:
        top = self.stack[-1]
        top.error, top.left, top.ends_at = error, 0.0, 0.0
        self._raise(top, frame)

    def _raise(self, limit: Limit, frame: FrameType | None) -> None:
        # Inside our own bookkeeping an exception would leave it half changed: come again.
        if _in_bookkeeping(frame):
            signal.setitimer(signal.ITIMER_REAL, _SOON_S, REPEAT_S)
            return
        self._struck = True
        if not isinstance(limit.error, BaseException):
            limit.error = limit.error()
        raise limit.error


class Limit:
    """One time limit, as a context."""

    __slots__ = ("_deadlines", "depth", "ends_at", "error", "left", "pid", "work")

    def __init__(self, deadlines: Deadlines, seconds: float, work: Work, error: Error) -> None:
        self.left = seconds
        self.work = work
        self.error = error
        self.ends_at = math.inf
        self.depth = 0
        self.pid = 0  # of the process that has entered it
        self._deadlines = deadlines

    def __enter__(self) -> Limit:
        self.depth, self.pid = len(self._deadlines.stack), os.getpid()
        self._deadlines.push(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._deadlines.pop(self, error)

    def pause(self) -> None:
        """Stop the clock; ``left`` is what remains."""
        self.left = max(0.0, self.ends_at - time.monotonic())


def _nothing() -> None:
    """Nothing is to be done."""


def _in_bookkeeping(frame: FrameType | None) -> bool:
    """Whether the nearest of our own modules is one that calls no code of users, or only through one that does."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("envq."):
            return module in _BOOKKEEPING or (module.startswith(_RUNTIME) and module != _CALLS_USERS)
        frame = frame.f_back
    return False


def _end_copy(error: BaseException | None) -> NoReturn:
    """End this process as Python ends one, without what belongs to the process it was forked from."""
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)
