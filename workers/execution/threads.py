"""Whose a thread is: of a variable, whose build started it, or of a job that has ended without it."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from weakref import WeakSet


class Threads:
    """
    Knows which threads no job is to be blamed for, and which no later job is to be touched by.

    Attributes:
        left: threads that jobs have left running, as of the last ``leave``
    """

    def __init__(self) -> None:
        self.left: frozenset[threading.Thread] = frozenset()
        self._kept: WeakSet[threading.Thread] = WeakSet()

    def of_variable(self, thread: threading.Thread) -> bool:
        """A build started it: also where a job's read built the variable, it belongs to that."""
        return thread in self._kept

    @contextmanager
    def noting(self) -> Generator[None]:
        """Keep those that are started inside the block."""
        before = set(threading.enumerate())
        try:
            yield
        finally:
            self._kept.update(thread for thread in threading.enumerate() if thread not in before)

    def leave(self, threads: Iterable[threading.Thread]) -> None:
        """Their job ends without them; those that have ended since are forgotten."""
        self.left = frozenset(thread for thread in (*self.left, *threads) if thread.is_alive())
