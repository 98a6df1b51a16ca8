"""The lease: how soon a worker that vanished is made up for, and everything that follows from that one number.

What lies within it, with a worker of the same lease to judge: the last sign of life, ``silence_s`` in which no other
came, the next look of a judge, the settlement, and the claim of whoever runs the jobs again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT_LEASE_S: Final = 30.0
SHORTEST_LEASE_S: Final = 2.0
LONGEST_LEASE_S: Final = 3600.0
_LONGEST_BEAT_S: Final = 5.0  # what stands in Redis of an executor expires after a minute without a sign of life


@dataclass(frozen=True)
class Lease:
    """A promise of so many seconds; all times in seconds."""

    seconds: float = DEFAULT_LEASE_S

    @property
    def beat_s(self) -> float:
        """Between two signs of life: four of them may get lost."""
        return min(self.seconds / 8, _LONGEST_BEAT_S)

    @property
    def silence_s(self) -> float:
        """Whoever has given no sign for so long is taken for dead, by the server's clock."""
        return self.seconds * 0.6

    @property
    def look_s(self) -> float:
        """Between two looks at who is silent."""
        return min(self.seconds / 8, _LONGEST_BEAT_S)

    @property
    def trust_s(self) -> float:
        """An executor that has not asked for so long, asleep or stopped, asks whether it was taken for dead."""
        return self.silence_s * 2 / 3

    @property
    def gap_s(self) -> float:
        """A worker whose contact was interrupted for so long does not judge others by the time before."""
        return self.silence_s / 2

    def at_most(self, seconds: float) -> float:
        """A pause or a wait, cut down so that a worker that lost Redis is back before it is taken for dead."""
        return min(seconds, self.silence_s / 4)
