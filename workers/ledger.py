"""Shared memory between a supervisor and one executor: ends of jobs that are not stored yet, as opaque bytes.

The executor notes each end, and forgets all of them once a round trip has stored them. So its supervisor can store
them where the executor is busy with a long job, or dead: a job that had ended never runs again for a kill.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from ctypes import c_char
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from typing import Any, Final, cast

CAPACITY: Final = 512 * 1024
_WORD: Final = 8
_SEQUENCE, _SEIZED = 0, 1  # words, each written at once; the second is the supervisor's
_HEAD: Final = struct.Struct("@QQQQQ")  # trip, jobs held, the area that is written now, bytes used in each
_ENDS: Final = 2 * _WORD + _HEAD.size
_LENGTH: Final = struct.Struct("@I")
_AREAS: Final = (_ENDS, _ENDS + CAPACITY)
_SIZE: Final = _ENDS + 2 * CAPACITY  # a multiple of a word
_TRIES: Final = 1000


@dataclass(frozen=True)
class LedgerView:
    """One consistent reading: the executor's round trip number, how many jobs it then held, and what it noted since."""

    trip: int
    held: int
    ends: list[bytes]


class Ledger:
    """One executor's ends; made by the supervisor, handed to the process at its start."""

    def __init__(self, context: BaseContext) -> None:
        self._memory = context.RawArray(c_char, _SIZE)
        self._view: memoryview | None = None
        self._words: memoryview | None = None
        self._sequence = 0
        self._area = 0
        self._used = [0, 0]
        self._held = 0
        self.trip = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_view": None, "_words": None}

    @property
    def _bytes(self) -> memoryview:
        if self._view is None:
            self._view = memoryview(cast(Any, self._memory)).cast("B")
        return self._view

    @property
    def _word(self) -> memoryview:
        if self._words is None:
            self._words = self._bytes.cast("Q")
        return self._words

    def detach(self) -> None:
        """In a copy of the executor: what it writes from now on is seen by nobody."""
        self._view = memoryview(bytearray(_SIZE))
        self._words = self._view.cast("Q")

    # -- the executor ------------------------------------------------------------------------------------

    def begin(self, trip: int, held: int, kept: Iterable[bytes] = (), *, since_turn: bool = False) -> None:
        """
        What was noted is stored, but for what is kept; what comes belongs to this round trip.

        With ``since_turn``, what was noted since the last turn is not stored either.
        """
        self.trip, self._held = trip, held
        if since_turn:
            self._used[1 - self._area] = 0
        else:
            # Beside what readers still see, where that can be.
            self._area = self._area if self._used[1 - self._area] else 1 - self._area
            self._used[:] = [0, 0]
        for end in kept:
            self._write(end)
        self._publish()

    def turn(self) -> bool:
        """What was noted is on its way to be stored; False where something else is, still."""
        if self._used[1 - self._area]:
            return False
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

    def _publish(self) -> None:
        word = self._word
        self._sequence = sequence = self._sequence + 2
        word[_SEQUENCE] = sequence - 1
        _HEAD.pack_into(self._bytes, 2 * _WORD, self.trip, self._held, self._area, *self._used)
        word[_SEQUENCE] = sequence

    # -- the supervisor ------------------------------------------------------------------------------------

    def read(self) -> LedgerView:
        """What is noted and not stored as far as the executor knows; also after its death."""
        trip, held, ends = 0, 0, list[bytes]()
        for _ in range(_TRIES):
            before = self._word[_SEQUENCE]
            trip, held, area, *used = self._head()
            copies = [bytes(self._bytes[start : start + size]) for start, size in zip(_AREAS, used, strict=True)]
            ends = _split(copies[1 - area]) + _split(copies[area])
            if self._word[_SEQUENCE] == before:
                break
        return LedgerView(trip, held, ends)

    @property
    def shared(self) -> tuple[int, bool]:
        """The round trip number, and whether there is anything that could wait for a long job."""
        trip, held, _, *used = self._head()
        return trip, held > 1 or any(used)

    def seize(self, trip: int) -> None:
        """Tell the executor to ask Redis before it begins with another job of this round trip."""
        self._word[_SEIZED] = trip

    def _head(self) -> tuple[int, int, int, int, int]:
        trip, held, area, first, second = 0, 0, 0, 0, 0
        for _ in range(_TRIES):
            before = self._word[_SEQUENCE]
            trip, held, area, first, second = _HEAD.unpack_from(self._bytes, 2 * _WORD)
            if self._word[_SEQUENCE] == before and not before & 1:
                break
        # A writer killed in the middle of it: what it noted last may be missing, and that job runs again.
        return trip, held, area & 1, min(first, CAPACITY), min(second, CAPACITY)


def _split(content: bytes) -> list[bytes]:
    ends: list[bytes] = []
    at = 0
    while at + _LENGTH.size <= len(content):
        (size,) = _LENGTH.unpack_from(content, at)
        ends.append(content[at + _LENGTH.size : at + _LENGTH.size + size])
        at += _LENGTH.size + size
    return ends
