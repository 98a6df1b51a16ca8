"""Which executors a worker should have: places, when each is filled, how many jobs are left to share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from envq.workers.config import EXIT_RECYCLE, WorkerConfig
from envq.workers.supervision.backoff import Backoff
from envq.workers.supervision.verdict import Death

HEALTHY_AFTER_S: Final = 10.0  # an executor that lived so long is replaced without delay
FIRST_PAUSE_S: Final = 1.0  # after a fresh executor did not get ready, while the one before goes on
LONGEST_PAUSE_S: Final = 60.0


class JobBudget:
    """The jobs a worker may still run, handed out as shares so that never more are run; None: no limit."""

    def __init__(self, total: int | None, executors: int) -> None:
        self._unassigned = total
        self._executors = executors

    @property
    def exhausted(self) -> bool:
        """Nothing is left that could be handed out."""
        return self._unassigned == 0

    def first_share(self, number: int) -> int | None:
        """An even part of the total for each of the first executors (numbers from 0)."""
        if self._unassigned is None:
            return None
        share = -(-self._unassigned // (self._executors - number))
        self._unassigned -= share
        return share

    def next_share(self) -> int | None:
        """All that is unassigned."""
        share, self._unassigned = self._unassigned, None if self._unassigned is None else 0
        return share

    def give_back(self, share: int | None, used: int) -> None:
        """Return what an executor did not use."""
        if self._unassigned is not None and share is not None:
            self._unassigned += max(0, share - used)


@dataclass
class Succession:
    """A fresh executor is to get ready beside the one that works, and to follow it then; pure bookkeeping."""

    heritage: tuple[str, ...]  # variables it must be able to build
    due_at: float
    backoff: Backoff = field(default_factory=lambda: Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S))

    def delay(self, now: float) -> None:
        """It could not be started, or did not get ready."""
        self.due_at = now + self.backoff.next()


@dataclass
class Place:
    """A position in which executors follow each other; pure bookkeeping."""

    number: int
    due_at: float = 0.0
    retired: bool = False  # no executor follows
    share: int | None = None  # of the worker's jobs, for the executor in the place
    occupied: bool = False
    ever_filled: bool = False
    backoff: Backoff = field(default_factory=Backoff)
    succession: Succession | None = None

    def fill(self, budget: JobBudget) -> bool:
        """Take a share of the jobs for a new executor; False (and retired) where none is left."""
        self.share = budget.next_share() if self.ever_filled else budget.first_share(self.number)
        self.ever_filled = True
        self.occupied = self.share != 0
        self.retired = self.retired or not self.occupied
        return self.occupied

    def delay(self, now: float) -> None:
        """The start failed, or what was started died too soon."""
        self.due_at = now + self.backoff.next()

    def vacate(self, death: Death, lived_s: float, now: float, *, asked: bool, config: WorkerConfig) -> None:
        """Decide whether and when another executor follows; ``asked``: it was told to stop."""
        self.occupied = False
        self.succession = None
        self.due_at = now
        if lived_s > HEALTHY_AFTER_S:
            self.backoff.reset()
        if death.exit_code == EXIT_RECYCLE or (asked and death.clean):
            return
        if death.clean and (config.burst or config.max_idle_s is not None):
            self.retired = True
        elif death.view.job_id:
            # The job's own count bounds this loop; a growing pause would starve the jobs behind it.
            self.due_at = now + self.backoff.first_s
        elif lived_s <= HEALTHY_AFTER_S and not (death.clean and config.max_jobs is not None):
            self.delay(now)


def jobs_used(death: Death) -> int:
    """Executions that count against a share: those that ended, and the one a death cut off."""
    return death.view.jobs + (1 if death.ran else 0)
