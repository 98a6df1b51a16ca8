"""Claims and records of executors that are gone: settled in Redis, however long Redis is away."""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from redis import Redis, ResponseError

from envq.clock import iso, utc_now
from envq.store import keys as rq
from envq.store.connection import is_about_the_data
from envq.store.events import append, event
from envq.store.exchange import Exchange
from envq.store.executor_store import ExecutorStore
from envq.store.keys import Keys
from envq.store.records import Event, EventKind
from envq.store.scripts import Outcome, follow_up, release
from envq.workers.execution.claims import POLL_S
from envq.workers.execution.quarantine import MARK_TTL_S, build_mark
from envq.workers.stranded import follow_up_stranded
from envq.workers.supervision.verdict import UNKNOWN, BrokenBuild, Verdict

LOOK_AGAIN_S: Final = POLL_S + 2.0  # no move blocks for longer, whatever lies between an executor and the server
DEATH_KEPT_S: Final = 60  # so long RQ shows a worker that died

log = logging.getLogger("envq.worker")

Outcomes = list[tuple[str, Outcome]]


@dataclass(frozen=True)
class Settlement:
    """One executor that is gone."""

    executor: str
    verdict: Verdict
    died: str = ""  # how, for the event; "" for one that left in good order
    build: BrokenBuild | None = None
    ends: tuple[bytes, ...] = ()  # of jobs that had ended; they are stored, and do not run again
    sudden: bool = False  # it may have been waiting, and the server may not know yet that it is gone


class Settlements:
    """What is still to be settled; a release that is repeated finds nothing left to do."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._open: list[Settlement] = []
        self._again: list[tuple[float, str]] = []  # when, by the monotonic clock, and whom to look at once more
        self._vanished = False  # one of whom nobody knows what it was at; what it may have left is not looked for yet

    @property
    def due(self) -> bool:
        """There is something to do now."""
        return bool(self._open) or self._vanished or any(moment <= time.monotonic() for moment, _ in self._again)

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def executors(self) -> set[str]:
        """Whose affairs are not settled yet."""
        return {settlement.executor for settlement in self._open}

    def add(self, settlement: Settlement) -> None:
        """Settle this as soon as Redis answers."""
        self._open.append(settlement)

    def work_off(self, connection: Redis) -> bool:
        """Settle what is due; True if a job waits for an executor to end it. After a RedisError the rest is kept."""
        ring = False
        while self._again and self._again[0][0] <= time.monotonic():
            # A move that still blocked for it may have put a job into its claims after they were settled.
            release(connection, self._keys, self._again[0][1], running="", why="handback", dead=True)
            del self._again[0]
        while self._open:
            to_be_settled = _settle(connection, self._keys, self._open[0])
            self._vanished = self._vanished or self._open[0].verdict.running == UNKNOWN
            if self._open[0].sudden:
                self._again.append((time.monotonic() + LOOK_AGAIN_S, self._open[0].executor))
            del self._open[0]
            ring = ring or to_be_settled
        if self._vanished:
            ring = follow_up_stranded(connection, self._keys) or ring
            self._vanished = False
        return ring

    def hand_over(self, connection: Redis) -> None:
        """Leave to the reapers of other workers what is to be looked at later than this one lives."""
        if self._again:
            seconds, microseconds = connection.time()
            then = seconds * 1000 + microseconds // 1000 + round(LOOK_AGAIN_S * 1000)
            connection.zadd(self._keys.executors, {name: then for _, name in self._again})
            self._again.clear()


def _settle(connection: Redis, keys: Keys, settlement: Settlement) -> bool:
    """Whether a job waits for an executor to end it."""
    name, verdict = settlement.executor, settlement.verdict
    queues, held = _last_words(connection, keys, name)
    detail = f"{verdict.detail}; it held {held}" if held and verdict.why == "crash" else verdict.detail
    if settlement.ends:
        _store(connection, Exchange(keys, name), settlement.ends)
    outcomes = release(connection, keys, name, running=verdict.running, why=verdict.why, detail=detail, dead=True)
    _strike_off(connection, name, queues)
    if settlement.build is not None:
        _mark(connection, keys, name, settlement.build)
    ExecutorStore(connection, keys).remove(name)
    _announce(connection, keys, settlement, [*_of_jobs(settlement, outcomes)])
    for job_id, outcome in outcomes:
        if _ran(verdict, job_id):
            log.warning("job %s %s", job_id, _PLACES[outcome])
    followed = _was_stored(verdict, outcomes) and follow_up(connection, keys, verdict.running)
    return followed or any(outcome == "settle" for _, outcome in outcomes)


def _was_stored(verdict: Verdict, outcomes: Outcomes) -> bool:
    """Whether it died when its job was stored already, by RQ's code perhaps: that enqueues dependents only then."""
    return verdict.running not in ("", UNKNOWN, *(job_id for job_id, _ in outcomes))


def _store(connection: Redis, exchange: Exchange, ends: Sequence[bytes]) -> None:
    """All that can be stored; an end that no server takes must not hold up the settlement for ever."""
    try:
        exchange.finish(ends, time.time(), dead=True).run(connection)
    except ResponseError as error:
        if not is_about_the_data(error):
            raise
        if len(ends) == 1:
            log.error("an end that was noted cannot be stored, its job runs again: %s", error)
            return
        for end in ends:
            _store(connection, exchange, [end])


_PLACES: Final[dict[Outcome, str]] = {
    "front": "goes back to the front of its queue",
    "settle": "will not run again; an executor ends it",
    "gone": "is gone: its record was deleted",
}


def _last_words(connection: Redis, keys: Keys, name: str) -> tuple[list[str], str]:
    """RQ's names of the queues it listened on, and the variables it held."""
    queues = cast(bytes | None, cast(Any, connection).hget(rq.worker(name), "queues"))
    fields = cast(list[bytes], cast(Any, connection).hkeys(keys.executor(name)))
    names = sorted(field.decode(errors="replace") for field in fields)
    held = [field.removeprefix("variable:") for field in names if field.startswith("variable:")]
    return [queue for queue in (queues or b"").decode(errors="replace").split(",") if queue], ", ".join(held)


def _strike_off(connection: Redis, name: str, queues: Iterable[str]) -> None:
    """RQ's ``register_death``, by name."""
    key = rq.worker(name)
    with cast(Any, connection).pipeline(transaction=True) as pipeline:
        pipeline.srem(rq.WORKERS, key)
        for queue in queues:
            pipeline.srem(rq.workers_of(queue), key)
        pipeline.hset(key, "death", iso(utc_now()))
        pipeline.expire(key, DEATH_KEPT_S)
        pipeline.delete(rq.worker_executions(name))
        pipeline.execute()


def _mark(connection: Redis, keys: Keys, name: str, build: BrokenBuild) -> None:
    """
    A build that killed its process counts towards the quarantine; one that was cancelled does not.

    The executor left its mark only if this was its first build of the version.
    """
    key, mark = keys.tries(build.variable, build.version), build_mark(platform.node(), name)
    if build.blamed:
        cast(Any, connection).hset(key, mark, str(time.time()))
        connection.expire(key, MARK_TTL_S)
    else:
        cast(Any, connection).hdel(key, mark)


def _of_jobs(settlement: Settlement, outcomes: Outcomes) -> Iterable[Event]:
    verdict = settlement.verdict
    for job_id, outcome in outcomes:
        if not _ran(verdict, job_id) or outcome == "gone":
            continue
        kind = EventKind.JOB_REQUEUED if outcome == "front" else EventKind.JOB_LOST
        # What was stopped or ran into its limit is ended, and told, by the executor that settles it.
        if outcome == "front" or verdict.why == "crash":
            yield event(kind, worker=settlement.executor, job_id=job_id, detail=verdict.detail)


def _announce(connection: Redis, keys: Keys, settlement: Settlement, of_jobs: list[Event]) -> None:
    happened = list(of_jobs)
    if settlement.died:
        happened.insert(0, event(EventKind.EXECUTOR_DIED, worker=settlement.executor, detail=settlement.died))
    if not happened:
        return
    with cast(Any, connection).pipeline(transaction=False) as pipeline:
        for each in happened:
            append(pipeline, keys, each)
        pipeline.execute()


def _ran(verdict: Verdict, job_id: str) -> bool:
    return verdict.running in (job_id, UNKNOWN)
