"""Shared memory between a supervisor and one executor: what the executor does right now.

The executor writes, the supervisor reads, without a lock and without Redis. A sequence number that is odd
while a record is written lets the reader notice a torn read and repeat it (a seqlock).
"""

from __future__ import annotations

import struct
import time
from ctypes import c_char
from dataclasses import dataclass
from enum import IntEnum
from multiprocessing.context import BaseContext
from typing import Any, Final, cast

_TEXT: Final = 300  # bytes of an id or a name
_RECORD: Final = struct.Struct(f"=QiddQ H{_TEXT}s H{_TEXT}s")  # sequence, phase, since, deadline, jobs, two texts
_REQUEST: Final = struct.Struct(f"=i H{_TEXT}s")
_SEQUENCE: Final = struct.Struct("=Q")
SIZE: Final = _RECORD.size + _REQUEST.size
_TRIES: Final = 1000


class Phase(IntEnum):
    """What an executor is at."""

    STARTING = 0
    IDLE = 1
    BUILDING = 2  # subject: variable, detail: which build, see build_detail
    PREPARING = 3  # subject: job id: claimed, its own code has not run; detail: execution id once it has started
    RUNNING = 4  # subject: job id, detail: execution id
    STORING = 5  # subject: job id, detail: execution id
    RESETTING = 6  # subject: variable, detail: version
    STOPPING = 7


class Interrupt(IntEnum):
    """What the supervisor asks an executor to break off."""

    NOTHING = 0
    STOP_JOB = 1  # target: job id
    CANCEL_BUILD = 2  # target: variable
    CANCEL_OUTDATED_BUILD = 3  # target: variable; left alone inside a job


@dataclass(frozen=True)
class SlotView:
    """One consistent reading; times are of the monotonic clock, in seconds; deadline 0.0 means none."""

    phase: Phase
    subject: str
    detail: str
    since: float
    deadline: float
    jobs: int  # executions that ended, over the life of the process

    @property
    def job_id(self) -> str:
        """The job whose user code runs or has run unstored; "" otherwise."""
        return self.subject if self.phase in (Phase.RUNNING, Phase.STORING) else ""

    @property
    def cut(self) -> bool:
        """The subject may be only the beginning of what it was."""
        return len(self.subject.encode()) >= _TEXT

    @property
    def execution_id(self) -> str:
        """Its execution; "" otherwise."""
        return self.detail if self.job_id else ""


class Slot:
    """One executor's record; made by the supervisor, handed to the process at its start."""

    def __init__(self, context: BaseContext) -> None:
        self._memory = context.RawArray(c_char, SIZE)
        self._view: memoryview | None = None
        self._sequence = 0
        self._jobs = 0
        self._now = (Phase.STARTING, "", "")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_view": None}

    @property
    def _bytes(self) -> memoryview:
        if self._view is None:
            self._view = memoryview(cast(Any, self._memory)).cast("B")
        return self._view

    def detach(self) -> None:
        """In a copy of the executor: what it writes from now on is seen by nobody."""
        self._view = memoryview(bytearray(SIZE))

    def write(self, phase: Phase, subject: str = "", detail: str = "", deadline: float = 0.0) -> None:
        """Say what happens from now on (executor only)."""
        self._now = (phase, subject, detail)
        self._sequence += 1
        _SEQUENCE.pack_into(self._bytes, 0, self._sequence)
        first, second = _clip(subject), _clip(detail)
        record = _RECORD.pack(
            self._sequence,
            phase,
            time.monotonic(),
            deadline,
            self._jobs,
            len(first),
            first,
            len(second),
            second,
        )
        self._bytes[_SEQUENCE.size : _RECORD.size] = record[_SEQUENCE.size :]
        self._sequence += 1
        _SEQUENCE.pack_into(self._bytes, 0, self._sequence)

    @property
    def now(self) -> tuple[Phase, str, str]:
        """What was written last, without its times (executor only)."""
        return self._now

    def job_ended(self) -> None:
        """Count one execution; seen with the next write (executor only)."""
        self._jobs += 1

    def read(self) -> SlotView:
        """What the executor does; repeats while a record is being written (supervisor)."""
        record: tuple[Any, ...] = ()
        for _ in range(_TRIES):
            record = _RECORD.unpack_from(self._bytes, 0)
            (after,) = _SEQUENCE.unpack_from(self._bytes, 0)
            if record[0] == after and not after & 1:
                break
        # A writer killed in the middle of a record leaves it torn for good: the last reading must do.
        _, phase, since, deadline, jobs, n, subject, m, detail = record
        return SlotView(Phase(phase), _text(subject, n), _text(detail, m), since, deadline, jobs)

    def ask(self, interrupt: Interrupt, target: str) -> None:
        """Leave a request for the executor's signal handler (supervisor)."""
        text = _clip(target)
        _REQUEST.pack_into(self._bytes, _RECORD.size, interrupt, len(text), text)

    def asked(self) -> tuple[Interrupt, str]:
        """What the supervisor asked for last (executor)."""
        interrupt, n, text = _REQUEST.unpack_from(self._bytes, _RECORD.size)
        return Interrupt(interrupt), _text(text, n)


def build_detail(identity: tuple[int, str, int]) -> str:
    """Which build of a variable, from version, digest and epoch; begins with the version."""
    version, digest, epoch = identity
    return f"{version} {digest[:12]} {epoch}"


def version_built(detail: str) -> int:
    """The version in a ``build_detail``; 0 where there is none."""
    version = detail.partition(" ")[0]
    return int(version) if version.isdigit() else 0


def _clip(text: str) -> bytes:
    return text.encode()[:_TEXT]


def _text(raw: bytes, length: int) -> str:
    return raw[:length].decode(errors="replace")
