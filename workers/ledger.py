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
_HEAD: Final = struct.Struct("@QQQQ")  # trip, jobs held, which of the two areas, bytes used in it
_ENDS: Final = 2 * _WORD + _HEAD.size
_LENGTH: Final = struct.Struct("@I")
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
        self._used = 0
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

    def begin(self, trip: int, held: int, kept: Iterable[bytes] = ()) -> None:
        """All that was noted is stored, but for what is kept; what comes belongs to this round trip."""
        self.trip, self._held, self._area, self._used = trip, held, 1 - self._area, 0
        for end in kept:
            self._write(end)
        self._publish()

    def note(self, end: bytes) -> bool:
        """Note the end of a job; False where there is no room, and nothing is noted."""
        if not self._write(end):
            return False
        self._publish()
        return True

    def _write(self, end: bytes) -> bool:
        start, size = _ENDS + self._area * CAPACITY + self._used, _LENGTH.size + len(end)
        if self._used + size > CAPACITY:
            return False
        _LENGTH.pack_into(self._bytes, start, len(end))
        self._bytes[start + _LENGTH.size : start + size] = end
        self._used += size
        return True

    @property
    def used(self) -> int:
        """Bytes noted."""
        return self._used

    @property
    def seized(self) -> bool:
        """The supervisor gives back what waits: to be read after the slot names the next job, before that begins."""
        return self.trip > 0 and self._word[_SEIZED] == self.trip

    def _publish(self) -> None:
        # Two areas take turns, and what lies in one never changes before the trip does: readers compare the trip.
        word = self._word
        self._sequence = sequence = self._sequence + 2
        word[_SEQUENCE] = sequence - 1
        _HEAD.pack_into(self._bytes, 2 * _WORD, self.trip, self._held, self._area, self._used)
        word[_SEQUENCE] = sequence

    # -- the supervisor ------------------------------------------------------------------------------------

    def read(self) -> LedgerView:
        """What is noted and not stored as far as the executor knows; also after its death."""
        trip, held, content = 0, 0, b""
        for _ in range(_TRIES):
            trip, held, area, used = self._head()
            start = _ENDS + area * CAPACITY
            content = bytes(self._bytes[start : start + used])
            if self._head()[0] == trip:
                break
        return LedgerView(trip, held, _split(content))

    @property
    def shared(self) -> tuple[int, bool]:
        """The round trip number, and whether there is anything that could wait for a long job."""
        trip, held, _, used = self._head()
        return trip, held > 1 or used > 0

    def seize(self, trip: int) -> None:
        """Tell the executor to ask Redis before it begins with another job of this round trip."""
        self._word[_SEIZED] = trip

    def _head(self) -> tuple[int, int, int, int]:
        trip, held, area, used = 0, 0, 0, 0
        for _ in range(_TRIES):
            before = self._word[_SEQUENCE]
            trip, held, area, used = _HEAD.unpack_from(self._bytes, 2 * _WORD)
            if self._word[_SEQUENCE] == before and not before & 1:
                break
        # A writer killed in the middle of it: what it noted last may be missing, and that job runs again.
        return trip, held, area & 1, min(used, CAPACITY)


def _split(content: bytes) -> list[bytes]:
    ends: list[bytes] = []
    at = 0
    while at + _LENGTH.size <= len(content):
        (size,) = _LENGTH.unpack_from(content, at)
        ends.append(content[at + _LENGTH.size : at + _LENGTH.size + size])
        at += _LENGTH.size + size
    return ends
