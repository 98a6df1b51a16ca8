"""The executors of one worker: filling their places, noticing their ends, replacing them."""

from __future__ import annotations

import logging
import os
import selectors
import signal
from collections.abc import Iterator
from functools import partial

from envq.workers.config import EXIT_BUILD_FAILED, WorkerConfig
from envq.workers.supervision.executor_process import ExecutorProcess, Target
from envq.workers.supervision.places import JobBudget, Place, jobs_used
from envq.workers.supervision.processes import Nursery
from envq.workers.supervision.verdict import Death, Intent

log = logging.getLogger("envq.worker")


class Crew:
    """Executors by place."""

    def __init__(
        self, config: WorkerConfig, target: Target, nursery: Nursery, selector: selectors.BaseSelector
    ) -> None:
        self.build_failed = False  # an executor asked to end the whole worker
        self._config = config
        self._target = target
        self._nursery = nursery
        self._selector = selector
        self._places = [Place(number) for number in range(config.executors)]
        self._budget = JobBudget(config.max_jobs, config.executors)
        self._members: dict[int, ExecutorProcess] = {}
        self._renewing: list[int] = []  # places to be given a fresh executor, one after the other

    def __iter__(self) -> Iterator[ExecutorProcess]:
        return iter(list(self._members.values()))

    @property
    def finished(self) -> bool:
        """No executor is there and none will follow."""
        return not self._members and all(place.retired for place in self._places)

    @property
    def next_start(self) -> float | None:
        """When a place is to be filled, by the monotonic clock; None where none waits."""
        return min((place.due_at for place in self._vacant()), default=None)

    def fill(self, now: float) -> list[ExecutorProcess]:
        """Start the executors that are due."""
        due = [place for place in self._vacant() if place.due_at <= now and place.fill(self._budget)]
        started = [self._start(place, now) for place in due]
        return [executor for executor in started if executor is not None]

    def bury(self, now: float) -> list[Death]:
        """Take those that ended out of their places."""
        return [
            self._vacate(number, executor, death, now)
            for number, executor in list(self._members.items())
            if (death := executor.bury()) is not None
        ]

    def retire(self, executor: ExecutorProcess | None = None) -> None:
        """Stop one executor, or all: warm, and not replaced."""
        for place in self._places:
            member = self._members.get(place.number)
            if executor is None or member is executor:
                place.retired = True
                if member is not None and not member.stop_asked:
                    member.stop()

    def kill(self, intent: Intent) -> None:
        """Kill all that run."""
        for executor in self:
            executor.kill(intent)

    def dump_stacks(self) -> None:
        """Make each executor write where it is to its stderr."""
        for executor in self:
            executor.process.send(signal.SIGTTIN)

    def renew(self) -> None:
        """Replace all executors, one after the other; ``renew_next`` goes on with it."""
        self._renewing = list(self._members)

    def renew_next(self) -> None:
        """Stop the next executor that is to be replaced, once the one before has its successor."""
        if (
            self._renewing
            and all(executor.born and not executor.stop_asked for executor in self._members.values())
            and not any(self._vacant())
        ):
            executor = self._members.get(self._renewing.pop(0))
            if executor is not None:
                executor.stop()

    def forget(self) -> None:
        """In a forked child: close the copies of the control pipes."""
        for executor in self:
            executor.control.close()

    def _vacant(self) -> list[Place]:
        return [place for place in self._places if not place.occupied and not place.retired]

    def _start(self, place: Place, now: float) -> ExecutorProcess | None:
        config = self._config.executor(place.number + 1, os.getpid(), self._limit(place.share))
        try:
            executor = ExecutorProcess(config, self._nursery, self._target)
        except OSError as error:
            log.error("cannot start an executor: %s", error)
            self._budget.give_back(place.share, 0)
            place.occupied = False
            place.delay(now)
            return None
        self._members[place.number] = executor
        self._selector.register(executor.control, selectors.EVENT_READ, partial(self._hear, executor))
        log.debug("executor %s (pid %d) started", executor.name, executor.pid)
        return executor

    def _limit(self, share: int | None) -> int | None:
        limits = [limit for limit in (share, self._config.max_jobs_per_child) if limit is not None]
        return min(limits, default=None)

    def _hear(self, executor: ExecutorProcess) -> None:
        if not executor.hear():
            self._ignore(executor)

    def _ignore(self, executor: ExecutorProcess) -> None:
        if executor.control in {key.fileobj for key in self._selector.get_map().values()}:
            self._selector.unregister(executor.control)

    def _vacate(self, number: int, executor: ExecutorProcess, death: Death, now: float) -> Death:
        del self._members[number]
        place = self._places[number]
        self._budget.give_back(place.share, jobs_used(death))
        place.vacate(death, executor.lived_s, now, asked=executor.stop_asked, config=self._config)
        self.build_failed = self.build_failed or death.exit_code == EXIT_BUILD_FAILED
        self._ignore(executor)
        executor.close()
        return death
