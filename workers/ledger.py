"""Shared memory between a supervisor and one executor: ends of jobs that are not stored yet, as opaque bytes.

The executor notes each end, and forgets all of them once a round trip has stored them. So its supervisor can store
them where the executor is busy with a long job, or dead: a job that had ended never runs again for a kill.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from typing import Final

from envq.workers.shared_memory import WORD, SharedMemory

CAPACITY: Final = 512 * 1024  # bytes of ends in each of two areas
# Words, each written at once: the executor's state, the supervisor's, then trip and jobs held, twice.
_STATE, _SEIZED, _TRIPS = 0, 1, 2
_ENDS: Final = (_TRIPS + 4) * WORD
_AREAS: Final = (_ENDS, _ENDS + CAPACITY)
_SIZE: Final = _ENDS + 2 * CAPACITY
_USED_BITS: Final = 20
_USED: Final = (1 << _USED_BITS) - 1
_AREA_BIT: Final = 2 * _USED_BITS  # below it the bytes used in each area, above it how often was begun
_BEGUN: Final = (1 << (63 - _AREA_BIT)) - 1
_LENGTH: Final = struct.Struct("@I")
_TRIES: Final = 1000


@dataclass(frozen=True)
class LedgerView:
    """One consistent reading: the executor's round trip number, how many jobs it then held, and what it noted since."""

    trip: int
    held: int
    ends: list[bytes]


class Ledger(SharedMemory):
    """One executor's ends; made by the supervisor, handed to the process at its start."""

    def __init__(self, context: BaseContext) -> None:
        super().__init__(context, _SIZE)
        self._begun = 0
        self._area = 0  # the one that is written now; the other one holds what is on its way, or nothing
        self._used = [0, 0]
        self.trip = 0

    # -- the executor ------------------------------------------------------------------------------------

    def begin(self, trip: int, held: int, kept: Iterable[bytes] = (), *, since_turn: bool = False) -> None:
        """
        What was noted is stored, but for what is kept; what comes belongs to this round trip.

        With ``since_turn``, what was noted since the last turn is not stored either.
        """
        self._number(trip, held)
        kept = list(kept)
        if since_turn:
            self._used[1 - self._area] = 0
        elif kept and self._used[1 - self._area]:
            kept = []  # it is there, among others that are stored; no area is free to write it into
        else:
            self._area = 1 - self._area  # beside what readers still see
            self._used[:] = [0, 0]
        for end in kept:
            self._write(end)
        self._publish()

    def turn(self, trip: int, held: int) -> bool:
        """
        What was noted is on its way to be stored, with this round trip; False where something else is, still.

        The trip counts from now on: whatever is given back, is given back after it.
        """
        if self._used[1 - self._area]:
            return False
        self._number(trip, held)
        self._area = 1 - self._area
        self._publish()
        return True

    def note(self, end: bytes) -> bool:
        """Note the end of a job; False where there is no room, and nothing is noted."""
        if not self._write(end):
            return False
        self._publish()
        return True

    @property
    def used(self) -> int:
        """Bytes noted and not on their way."""
        return self._used[self._area]

    @property
    def seized_trip(self) -> int:
        """The last round trip whose jobs the supervisor gave back."""
        return self._word[_SEIZED]

    @property
    def seized(self) -> bool:
        """The supervisor gives back what waits: to be read after the slot names the next job, before that begins."""
        return self.trip > 0 and self._word[_SEIZED] == self.trip

    def _write(self, end: bytes) -> bool:
        used = self._used[self._area]
        start, size = _ENDS + self._area * CAPACITY + used, _LENGTH.size + len(end)
        if used + size > CAPACITY:
            return False
        memory = self._bytes
        _LENGTH.pack_into(memory, start, len(end))
        memory[start + _LENGTH.size : start + size] = end
        self._used[self._area] = used + size
        return True

    def _number(self, trip: int, held: int) -> None:
        self.trip, self._begun = trip, (self._begun + 1) & _BEGUN
        at = _TRIPS + 2 * (self._begun & 1)
        self._word[at], self._word[at + 1] = trip, held

    def _publish(self) -> None:
        # In one word, so that neither a kill nor a slow reader tears it.
        first, second = self._used
        self._word[_STATE] = (self._begun << 1 | self._area) << _AREA_BIT | second << _USED_BITS | first

    # -- the supervisor ------------------------------------------------------------------------------------

    def read(self) -> LedgerView:
        """What is noted and not stored as far as the executor knows; also after its death."""
        trip, held, ends = 0, 0, list[bytes]()
        for _ in range(_TRIES):
            begun, trip, held, area, used = self._look()
            copies = [bytes(self._bytes[start : start + size]) for start, size in zip(_AREAS, used, strict=True)]
            ends = _split(copies[1 - area]) + _split(copies[area])
            if self._look()[0] == begun:  # what is noted stays as it is until the next beginning
                break
        return LedgerView(trip, held, ends)

    @property
    def shared(self) -> tuple[int, bool]:
        """The round trip number, and whether there is anything that could wait for a long job."""
        _, trip, held, _, used = self._look()
        return trip, held > 1 or any(used)

    def seize(self, trip: int) -> None:
        """Tell the executor to ask Redis before it begins with another job of this round trip."""
        self._word[_SEIZED] = trip

    def _look(self) -> tuple[int, int, int, int, tuple[int, int]]:
        word, state, trip, held = self._word, 0, 0, 0
        for _ in range(_TRIES):
            state = word[_STATE]
            at = _TRIPS + 2 * (state >> (_AREA_BIT + 1) & 1)
            trip, held = word[at], word[at + 1]
            if word[_STATE] >> (_AREA_BIT + 1) == state >> (_AREA_BIT + 1):
                break
        used = (state & _USED, state >> _USED_BITS & _USED)
        return state >> (_AREA_BIT + 1), trip, held, state >> _AREA_BIT & 1, used


def _split(content: bytes) -> list[bytes]:
    ends: list[bytes] = []
    at = 0
    while at + _LENGTH.size <= len(content):
        (size,) = _LENGTH.unpack_from(content, at)
        ends.append(content[at + _LENGTH.size : at + _LENGTH.size + size])
        at += _LENGTH.size + size
    return ends
