"""How many jobs are claimed together: many of tiny ones, one of long ones."""

from __future__ import annotations

from typing import Final

from envq.store.exchange import BATCH

SHORT_S: Final = 0.010  # results wait for the end of their batch, so no batch should take longer


class Pace:
    """Grows while batches are short, and is at one job at once where jobs are long."""

    def __init__(self, most: int = BATCH) -> None:
        self._most = most
        self.wanted = 1

    def took(self, jobs: int, seconds: float) -> None:
        """Learn from a batch of so many jobs."""
        if seconds >= SHORT_S:
            self.wanted = max(1, min(self.wanted, int(jobs * SHORT_S / seconds)))
        elif jobs >= self.wanted:
            self.wanted = min(self._most, self.wanted * 2)
