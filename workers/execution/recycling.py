"""When an executor is to be replaced by a fresh one: after so many jobs, or once it has grown by so much."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from envq.workers.config import WorkerConfig
from envq.workers.execution.memory import Memory

LOOK_S: Final = 0.01  # between jobs that were claimed together, memory is not looked at more often
AT_MOST: Final = 2  # times a limit: so far an executor goes on while the fresh one gets ready

log = logging.getLogger("envq.worker")


class Recycling:
    """
    Decides for one executor. At a limit it asks for a fresh one and goes on; its supervisor tells it when to stop.

    Args:
        ask: asks for a fresh executor that gets ready meanwhile; False where there must never be two of them, so
            that this one has to leave first
    """

    def __init__(
        self, worker: WorkerConfig, memory: Memory, ask: Callable[[], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._jobs_limit = worker.max_jobs_per_child
        self._growth_limit = worker.max_memory_per_child_mib
        self._memory = memory
        self._ask = ask
        self._clock = clock
        self._look_at = 0.0
        self._asked = False
        self.limited = self._jobs_limit is not None or self._growth_limit is not None

    def jobs_left(self, jobs: int) -> int | None:
        """How many more it may run at most, having run so many; None: no limit."""
        return None if self._jobs_limit is None else max(0, self._jobs_limit * AT_MOST - jobs)

    def must_leave(self, jobs: int, *, more: bool) -> bool:
        """
        After a job: whether it was the last one, having run so many.

        Args:
            more: others were claimed together with it; memory is looked at now and then, and after the last of them
        """
        if self._jobs_limit is not None and jobs >= self._jobs_limit:
            reason = f"it has run {jobs} jobs"
            return jobs >= self._jobs_limit * AT_MOST or self.be_replaced(reason)
        if self._growth_limit is None or (more and self._clock() < self._look_at):
            return False
        self._look_at = self._clock() + LOOK_S
        grown = self._memory.grown_mib
        if grown <= self._growth_limit:
            return False
        reason = f"it has grown by more than {self._growth_limit} MiB"
        return self.be_replaced(reason) or grown > self._growth_limit * AT_MOST

    def be_replaced(self, reason: str) -> bool:
        """Ask for a fresh executor, once; whether this one has to leave at once."""
        if self._asked:
            return False
        self._asked = True
        beside = self._ask()
        how = "another one gets ready meanwhile" if beside else "it leaves, and another one is started"
        log.info("the executor is replaced: %s; %s (%s)", reason, how, self._memory)
        return not beside
