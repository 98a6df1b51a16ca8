"""Shared memory between a supervisor and one executor: what the executor does right now.

The executor writes, the supervisor reads, without a lock and without Redis. Two records take turns, and the number of
those written tells which one counts: nobody reads one while it is written.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from enum import IntEnum
from multiprocessing.context import BaseContext
from typing import Final

from envq.workers.shared_memory import WORD, SharedMemory

_TEXT: Final = 300  # bytes of an id or a name
_NUMBERS: Final = struct.Struct("@iddQ?")  # phase, since, deadline, jobs, inside a job
_PAIR: Final = struct.Struct(f"=H{_TEXT}s H{_TEXT}s")
_REQUEST: Final = struct.Struct(f"=i H{_TEXT}s")
_JOB: Final = _NUMBERS.size  # where in a record the job and its execution stand, then what is being built or reset
_WORK: Final = _JOB + _PAIR.size
_RECORD: Final = _WORK + _PAIR.size
_REQUESTS: Final = WORD + 2 * _RECORD
# What the job has read, in one word: the lower bits are variables, the others how many jobs had ended before it.
_READ: Final = -(-(_REQUESTS + _REQUEST.size) // WORD)
_NAMES: Final = (_READ + 1) * WORD
_NAME: Final = struct.Struct("=H62s")
_NAMES_KEPT: Final = 40
_JOBS_KEPT: Final = (1 << (64 - _NAMES_KEPT)) - 1
_SIZE: Final = _NAMES + _NAMES_KEPT * _NAME.size
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


_OF_JOBS: Final = frozenset({Phase.PREPARING, Phase.RUNNING, Phase.STORING})


@dataclass(frozen=True)
class SlotView:
    """One consistent reading; times are of the monotonic clock, in seconds; deadline 0.0 means none."""

    phase: Phase
    subject: str
    detail: str
    since: float
    deadline: float
    jobs: int  # executions that ended, over the life of the process
    ran: str = ""  # the job that has begun and is not at its end, whatever is built or reset inside it; "" for none

    @property
    def job_id(self) -> str:
        """The job whose user code runs or has run unstored; "" otherwise."""
        return self.subject if self.phase in (Phase.RUNNING, Phase.STORING) else ""

    @property
    def cut(self) -> bool:
        """The id of the job may be only the beginning of what it was."""
        return len(self.ran.encode()) >= _TEXT

    @property
    def execution_id(self) -> str:
        """Its execution; "" otherwise."""
        return self.detail if self.job_id else ""


class Slot(SharedMemory):
    """One executor's record; made by the supervisor, handed to the process at its start."""

    def __init__(self, context: BaseContext) -> None:
        super().__init__(context, _SIZE)
        self._written = 0
        self._jobs = 0
        self._inside = False
        self._job: tuple[str, str] = ("", "")
        self._work: tuple[str, str] = ("", "")
        # What stands in each of the two records.
        self._there: list[list[tuple[str, str]]] = [[self._job, self._work] for _ in range(2)]
        self._now = (Phase.STARTING, "", "")
        self._bits: dict[str, int] = {}
        self._read_by, self._read = -1, 0

    def move_to(self, other: Slot) -> None:
        """In a copy of the executor: write into the memory of another slot from now on, which somebody reads."""
        self._look_at(other._bytes)
        self._there = [[("", ""), ("", "")] for _ in range(2)]
        self._bits = {}
        self._written, self._read_by = 0, -1
        self.write(*self._now)

    def clear(self) -> None:
        """Nothing is done, and nothing is asked."""
        self._bytes[:] = bytes(len(self._bytes))

    def write(self, phase: Phase, subject: str = "", detail: str = "", deadline: float = 0.0) -> None:
        """Say what happens from now on (executor only). A job is begun once its execution is named."""
        memory = self._bytes
        self._now = (phase, subject, detail)
        if phase in _OF_JOBS:
            if detail or phase is not Phase.PREPARING:
                self._inside = True
            if self._job != (subject, detail):
                self._job = (subject, detail)
        elif self._work != (subject, detail):
            self._work = (subject, detail)
        # Two records take turns: the one that readers are told of is not touched.
        self._written = written = self._written + 1
        start, there = WORD + (written & 1) * _RECORD, self._there[written & 1]
        if there[0] is not self._job:
            there[0] = self._job
            _put(memory, start + _JOB, there[0])
        if there[1] is not self._work:
            there[1] = self._work
            _put(memory, start + _WORK, there[1])
        _NUMBERS.pack_into(memory, start, phase, time.monotonic(), deadline, self._jobs, self._inside)
        self._word[0] = written

    def note_read(self, name: str) -> None:
        """The job that runs reads a variable (executor only); a process notes the first ``_NAMES_KEPT`` names."""
        if not self._inside:
            return
        bit = self._bits.get(name)
        if bit is None:
            bit = self._bits[name] = self._new_bit(name)
        if self._read_by != self._jobs:
            self._read_by, self._read = self._jobs, (self._jobs & _JOBS_KEPT) << _NAMES_KEPT
        self._read |= bit
        self._word[_READ] = self._read

    def _new_bit(self, name: str) -> int:
        number, text = len(self._bits), name.encode()[: _NAME.size - 2]
        if number >= _NAMES_KEPT:
            return 0
        _NAME.pack_into(self._bytes, _NAMES + number * _NAME.size, len(text), text)
        return 1 << number

    @property
    def now(self) -> tuple[Phase, str, str]:
        """What was written last, without its times (executor only)."""
        return self._now

    def end_job(self) -> None:
        """
        Count one execution, whose end is stored or noted; seen with the next write (executor only).

        Until then a reader takes the job for one that runs; but its claim is gone, or its end is in the ledger.
        """
        self._jobs += 1
        self._inside = False
        self._now = (Phase.IDLE, "", "")

    def leave_job(self) -> None:
        """Be idle; it did not begin, or it was counted before (executor only)."""
        self._inside = False
        self.write(Phase.IDLE)

    def read(self) -> SlotView:
        """What the executor does; repeats while a record is being written (supervisor)."""
        copy = bytes(_RECORD)
        for _ in range(_TRIES):
            written = self._word[0]
            start = WORD + (written & 1) * _RECORD
            copy = bytes(self._bytes[start : start + _RECORD])
            if self._word[0] == written:
                break
        number, since, deadline, jobs, inside = _NUMBERS.unpack_from(copy, 0)
        job, work = _pair(copy, _JOB), _pair(copy, _WORK)
        phase = Phase(number)
        subject, detail = job if phase in _OF_JOBS else work
        return SlotView(phase, subject, detail, since, deadline, jobs, job[0] if inside else "")

    def variables_read(self, view: SlotView) -> tuple[str, ...]:
        """Names of what the job has read that runs in this reading (supervisor)."""
        word = self._word[_READ]
        if not view.ran or word >> _NAMES_KEPT != view.jobs & _JOBS_KEPT:
            return ()
        entries = (_NAME.unpack_from(self._bytes, _NAMES + number * _NAME.size) for number in range(_NAMES_KEPT))
        return tuple(_text(text, n) for number, (n, text) in enumerate(entries) if word >> number & 1)

    def ask(self, interrupt: Interrupt, target: str) -> None:
        """Leave a request for the executor's signal handler (supervisor)."""
        text = _clip(target)
        _REQUEST.pack_into(self._bytes, _REQUESTS, interrupt, len(text), text)

    def asked(self) -> tuple[Interrupt, str]:
        """What the supervisor asked for last (executor)."""
        interrupt, n, text = _REQUEST.unpack_from(self._bytes, _REQUESTS)
        return Interrupt(interrupt), _text(text, n)


def build_detail(identity: tuple[int, str, int]) -> str:
    """Which build of a variable, from version, digest and epoch; begins with the version."""
    version, digest, epoch = identity
    return f"{version} {digest[:12]} {epoch}"


def version_built(detail: str) -> int:
    """The version in a ``build_detail``; 0 where there is none."""
    version = detail.partition(" ")[0]
    return int(version) if version.isdigit() else 0


def _put(memory: memoryview, at: int, pair: tuple[str, str]) -> None:
    first, second = pair[0].encode()[:_TEXT], pair[1].encode()[:_TEXT]
    _PAIR.pack_into(memory, at, len(first), first, len(second), second)


def _pair(memory: bytes, place: int) -> tuple[str, str]:
    n, first, m, second = _PAIR.unpack_from(memory, place)
    return _text(first, n), _text(second, m)


def _clip(text: str) -> bytes:
    return text.encode()[:_TEXT]


def _text(raw: bytes, length: int) -> str:
    return raw[:length].decode(errors="replace")
