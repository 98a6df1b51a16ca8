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

CAPACITY: Final = 512 * 1024  # bytes of ends
_WORD: Final = 8
# Words, each written at once: how often was begun, with the bytes noted since; the supervisor's; then two areas.
_STATE, _SEIZED, _AREAS = 0, 1, 2
_TRIP, _HELD, _HEAD = 0, 1, 2  # words at the beginning of an area
_AREA: Final = _HEAD + CAPACITY // _WORD  # words
_SIZE: Final = (_AREAS + 2 * _AREA) * _WORD
_USED_BITS: Final = 24
_LENGTH: Final = struct.Struct("@I")
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
        self._begun = 0
        self._used = 0
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
        # Two areas take turns: what lies in one never changes before another is told of, nor is it torn by a kill.
        self.trip, self._begun, self._used = trip, self._begun + 1, 0
        word, start = self._word, _start(self._begun)
        word[start + _TRIP], word[start + _HELD] = trip, held
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
        start, size = (_start(self._begun) + _HEAD) * _WORD + self._used, _LENGTH.size + len(end)
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
        self._word[_STATE] = self._begun << _USED_BITS | self._used

    # -- the supervisor ------------------------------------------------------------------------------------

    def read(self) -> LedgerView:
        """What is noted and not stored as far as the executor knows; also after its death."""
        trip, held, content = self._look(with_ends=True)
        return LedgerView(trip, held, _split(content))

    @property
    def shared(self) -> tuple[int, bool]:
        """The round trip number, and whether there is anything that could wait for a long job."""
        trip, held, _ = self._look(with_ends=False)
        return trip, held > 1 or self._word[_STATE] % (1 << _USED_BITS) > 0

    def seize(self, trip: int) -> None:
        """Tell the executor to ask Redis before it begins with another job of this round trip."""
        self._word[_SEIZED] = trip

    def _look(self, *, with_ends: bool) -> tuple[int, int, bytes]:
        word, (trip, held, content) = self._word, (0, 0, b"")
        for _ in range(_TRIES):
            begun, used = divmod(word[_STATE], 1 << _USED_BITS)
            start = _start(begun)
            trip, held = word[start + _TRIP], word[start + _HELD]
            if with_ends:
                first = (start + _HEAD) * _WORD
                content = bytes(self._bytes[first : first + used])
            if word[_STATE] >> _USED_BITS == begun:
                break
        return trip, held, content


def _start(begun: int) -> int:
    """The word with which an area begins."""
    return _AREAS + (begun & 1) * _AREA


def _split(content: bytes) -> list[bytes]:
    ends: list[bytes] = []
    at = 0
    while at + _LENGTH.size <= len(content):
        (size,) = _LENGTH.unpack_from(content, at)
        ends.append(content[at + _LENGTH.size : at + _LENGTH.size + size])
        at += _LENGTH.size + size
    return ends
