"""The executors of one worker: filling their places, noticing their ends, replacing them."""

from __future__ import annotations

import logging
import os
import selectors
import signal
import time
from collections.abc import Iterator
from functools import partial

from envq.workers.config import EXIT_BUILD_FAILED, ExecutorConfig, WorkerConfig
from envq.workers.supervision.executor_process import ExecutorProcess, Target
from envq.workers.supervision.places import JobBudget, Place, Succession, jobs_used
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
        self._members: dict[int, ExecutorProcess] = {}  # who works, by the number of the place
        self._successors: dict[int, ExecutorProcess] = {}  # who follows, and gets ready while the other goes on
        self._renewing: list[int] = []  # places to be given a fresh executor, one after the other

    def __iter__(self) -> Iterator[ExecutorProcess]:
        return iter([*self._members.values(), *self._successors.values()])

    @property
    def finished(self) -> bool:
        """No executor is there and none will follow."""
        return not self._members and all(place.retired for place in self._places)

    @property
    def next_start(self) -> float | None:
        """When a place is to be filled, by the monotonic clock; None where none waits."""
        successions = [succession.due_at for _, succession in self._awaiting()]
        return min([*successions, *(place.due_at for place in self._vacant())], default=None)

    def fill(self, now: float) -> list[ExecutorProcess]:
        """Start the executors that are due."""
        due = [place for place in self._vacant() if place.due_at <= now and place.fill(self._budget)]
        followed = [(place, each) for place, each in self._awaiting() if each.due_at <= now]
        started = [self._start(place, now) for place in due]
        started += [self._start_successor(place, succession, now) for place, succession in followed]
        return [executor for executor in started if executor is not None]

    def bury(self, now: float) -> list[Death]:
        """Take those that ended out of their places."""
        unready = [
            self._give_up(number, executor, death, now)
            for number, executor in list(self._successors.items())
            if (death := executor.bury()) is not None
        ]
        return unready + [
            self._vacate(number, executor, death, now)
            for number, executor in list(self._members.items())
            if (death := executor.bury()) is not None
        ]

    def retire(self, executor: ExecutorProcess | None = None) -> None:
        """Stop one executor, or all: warm, and not replaced."""
        for place in self._places:
            here = [each[place.number] for each in (self._members, self._successors) if place.number in each]
            if executor is None or executor in here:
                place.retired = True
                for each in here:
                    if not each.stop_asked:
                        each.stop()

    def kill(self, intent: Intent) -> None:
        """Kill all that run."""
        for executor in self:
            executor.kill(intent)

    def dump_stacks(self) -> None:
        """Make each executor write where it is to its stderr."""
        for executor in self:
            executor.process.send(signal.SIGTTIN)

    def renew(self) -> None:
        """Have all executors replaced, one after the other; ``renew_next`` goes on with it."""
        self._renewing = list(self._members)

    def renew_next(self) -> None:
        """Have the next executor replaced, once the one before has its successor."""
        if self._renewing and self._settled and not any(self._vacant()):
            executor = self._members.get(self._renewing.pop(0))
            if executor is not None:
                executor.renew()

    def forget(self) -> None:
        """In a forked child: close the copies of the control pipes."""
        for executor in self:
            executor.control.close()

    def _vacant(self) -> list[Place]:
        return [place for place in self._places if not place.occupied and not place.retired]

    def _awaiting(self) -> list[tuple[Place, Succession]]:
        """Places in which a fresh executor is to be started beside the one that works."""
        return [
            (place, place.succession)
            for place in self._places
            if place.succession is not None and not place.retired and place.number not in self._successors
            if not self._members[place.number].stop_asked
        ]

    @property
    def _settled(self) -> bool:
        """Nobody is about to be replaced."""
        return not self._successors and all(
            executor.born and executor.holds is None and not executor.stop_asked and not executor.renew_asked
            for executor in self._members.values()
        )

    def _start(self, place: Place, now: float) -> ExecutorProcess | None:
        executor = self._launch(self._config.executor(place.number + 1, os.getpid(), place.share))
        if executor is None:
            self._budget.give_back(place.share, 0)
            place.occupied = False
            place.delay(now)
        else:
            self._members[place.number] = executor
        return executor

    def _start_successor(self, place: Place, succession: Succession, now: float) -> ExecutorProcess | None:
        config = self._config.executor(place.number + 1, os.getpid(), None, succession.heritage)
        executor = self._launch(config)
        if executor is None:
            succession.delay(now)
        else:
            self._successors[place.number] = executor
        return executor

    def _launch(self, config: ExecutorConfig) -> ExecutorProcess | None:
        try:
            executor = ExecutorProcess(config, self._nursery, self._target)
        except OSError as error:
            log.error("cannot start an executor: %s", error)
            return None
        self._selector.register(executor.control, selectors.EVENT_READ, partial(self._hear, executor))
        log.debug("executor %s (pid %d) started", executor.name, executor.pid)
        return executor

    def _hear(self, executor: ExecutorProcess) -> None:
        if not executor.hear():
            self._ignore(executor)
        number = executor.config.number - 1
        member, place = self._members.get(number), self._places[number]
        if member is executor and executor.holds is not None and place.succession is None:
            place.succession = Succession(executor.holds, time.monotonic())
        elif self._successors.get(number) is executor and executor.born and member is not None:
            member.stop()  # it is ready: the one before ends its job and leaves

    def _ignore(self, executor: ExecutorProcess) -> None:
        if executor.control in {key.fileobj for key in self._selector.get_map().values()}:
            self._selector.unregister(executor.control)

    def _vacate(self, number: int, executor: ExecutorProcess, death: Death, now: float) -> Death:
        del self._members[number]
        place = self._places[number]
        if number in self._successors:
            self._members[number], place.succession = self._successors.pop(number), None
        else:
            self._budget.give_back(place.share, jobs_used(death))
            place.vacate(death, executor.lived_s, now, asked=executor.stop_asked, config=self._config)
        return self._close(executor, death)

    def _give_up(self, number: int, executor: ExecutorProcess, death: Death, now: float) -> Death:
        """A successor that ended before the one it was to follow, which goes on."""
        del self._successors[number]
        if (succession := self._places[number].succession) is not None:
            succession.delay(now)
        return self._close(executor, death)

    def _close(self, executor: ExecutorProcess, death: Death) -> Death:
        self.build_failed = self.build_failed or death.exit_code == EXIT_BUILD_FAILED
        self._ignore(executor)
        executor.close()
        return death
