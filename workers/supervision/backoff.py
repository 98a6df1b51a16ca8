"""Waiting longer after each failure, and at once again after a success."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Backoff:
    """Doubling delays between two bounds, in seconds."""

    first_s: float = 0.1
    longest_s: float = 30.0
    _next_s: float = 0.0

    def next(self) -> float:
        """The delay before the next try; the one after it is twice as long."""
        delay = self._next_s or self.first_s
        self._next_s = min(delay * 2, self.longest_s)
        return delay

    def reset(self) -> None:
        """Begin again with the shortest delay."""
        self._next_s = 0.0
