"""Threads that builds of variables started: they belong to the variable, also where a job's read built it."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from weakref import WeakSet


class VariableThreads:
    """Knows which threads no job is to be blamed for."""

    def __init__(self) -> None:
        self._kept: WeakSet[threading.Thread] = WeakSet()

    def __contains__(self, thread: threading.Thread) -> bool:
        return thread in self._kept

    @contextmanager
    def noting(self) -> Generator[None]:
        """Keep those that are started inside the block."""
        before = set(threading.enumerate())
        try:
            yield
        finally:
            self._kept.update(thread for thread in threading.enumerate() if thread not in before)
