"""Memory that a supervisor and one executor share, however the executor was started."""

from __future__ import annotations

from ctypes import c_char
from multiprocessing.context import BaseContext
from typing import Any, Final, cast

WORD: Final = 8  # bytes that are written and read at once: neither a kill nor a slow reader tears them


class SharedMemory:
    """So many bytes, also seen as words; made by the supervisor, handed to the process at its start."""

    def __init__(self, context: BaseContext, size: int) -> None:
        self._memory = context.RawArray(c_char, -(-size // WORD) * WORD)
        self._look_at(memoryview(cast(Any, self._memory)).cast("B"))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_bytes", "_word")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._look_at(memoryview(cast(Any, self._memory)).cast("B"))

    def detach(self) -> None:
        """In a copy of the executor: what it writes from now on is seen by nobody."""
        self._look_at(memoryview(bytearray(len(self._bytes))))

    def _look_at(self, memory: memoryview) -> None:
        self._bytes, self._word = memory, memory.cast("Q")
