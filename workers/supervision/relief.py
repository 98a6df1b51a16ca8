"""Jobs that were claimed together with a long one: what has ended is stored, what waits goes to other executors."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from redis import Redis

from envq.store.exchange import Ended, Exchange
from envq.store.keys import Keys
from envq.workers.slot import Phase, SlotView
from envq.workers.supervision.executor_process import ExecutorProcess

PATIENCE_S: Final = 0.1
LOOK_S: Final = 0.05
WATCH_S: Final = 1.0  # after an executor said that it holds a batch

log = logging.getLogger("envq.worker")


@dataclass(frozen=True)
class _Sight:
    """What an executor was seen to be at; the same twice means that it has not gone on."""

    trip: int
    jobs: int
    ran: str
    phase: Phase

    @classmethod
    def of(cls, view: SlotView, trip: int) -> _Sight:
        inside = Phase.RUNNING if view.ran else view.phase  # a build inside a job is part of it
        return cls(trip, view.jobs, view.ran, inside)


class Relief:
    """Looks at executors that hold batches."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._seen: dict[str, tuple[_Sight, float]] = {}
        self._done: dict[str, _Sight] = {}

    def next_look(self, executors: Iterable[ExecutorProcess]) -> float | None:
        """When to look, by the monotonic clock; None while nobody holds a batch."""
        now = time.monotonic()
        held = bool(self._seen) or any(now < executor.batch_at + WATCH_S for executor in executors)
        return now + LOOK_S if held else None

    def look(self, executors: Iterable[ExecutorProcess]) -> list[ExecutorProcess]:
        """Those that sit in one job for longer than ``PATIENCE_S`` and were not relieved of the rest."""
        now, seen = time.monotonic(), dict[str, tuple[_Sight, float]]()
        stuck: list[ExecutorProcess] = []
        for executor in executors:
            trip, shared = executor.ledger.shared
            view = executor.view
            if not shared or view.phase in (Phase.STARTING, Phase.IDLE, Phase.STOPPING):
                continue
            if view.cut:  # whoever gives back all but this job must know it
                continue
            sight = _Sight.of(view, trip)
            if self._done.get(executor.name) == sight:
                continue
            before, since = self._seen.get(executor.name, (None, now))
            seen[executor.name] = (sight, since if before == sight else now)
            if before == sight and now - since >= PATIENCE_S:
                stuck.append(executor)
        self._seen = seen
        return stuck

    def give(self, connection: Redis, executor: ExecutorProcess) -> int:
        """
        Store what it has noted, give back what waits behind its job; how many went back. Raises RedisError.

        The executor, before it begins with another job, looks whether it is seized, and asks Redis if so; and where it
        has asked since, Redis refuses. So nothing goes back that runs.
        """
        sight, _ = self._seen[executor.name]
        executor.ledger.seize(sight.trip)
        seen = executor.ledger.read()
        if _Sight.of(executor.view, seen.trip) != sight:
            return 0
        exchange = Exchange(self._keys, executor.name)
        leave = [sight.ran] if sight.ran else []
        if seen.ends:
            outcomes: list[int] = exchange.finish(seen.ends, time.time()).run(connection)
            kept = [end for end, outcome in zip(seen.ends, outcomes, strict=True) if outcome == Ended.HAS_DEPENDENTS]
            leave += exchange.ids_of(kept)
        back: list[bytes] | None = exchange.give_back(sight.trip, leave).run(connection)
        if back is None:
            return 0  # it goes on, or its round trip has not come to the server yet: look again
        self._done[executor.name] = sight
        self._seen.pop(executor.name, None)
        if back:
            log.info("executor %s is busy with a long job: %d jobs go back to their queues", executor.name, len(back))
        return len(back)

    def forget(self, executor: str) -> None:
        """It is gone."""
        self._seen.pop(executor, None)
        self._done.pop(executor, None)
