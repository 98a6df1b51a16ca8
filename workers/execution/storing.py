"""Storing the end of an execution exactly once, whatever becomes of the connection meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Protocol, cast

import redis

from envq.store import events, scripts
from envq.store.connection import REDIS_ERRORS, is_about_the_data
from envq.store.keys import Keys
from envq.store.records import EventKind
from envq.workers.execution.fence import Fence, FencedRedis, Refused
from envq.workers.execution.worker_job import WorkerJob
from envq.workers.outage import Outage

log = logging.getLogger("envq.worker")

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
_REFUSED: Final = ""
_REFUSALS: Final = 5
_UNREACHABLE: Final = (redis.ConnectionError, redis.TimeoutError, ConnectionError, TimeoutError)

# What RQ's code changes on the job while it builds a transaction that may not commit.
_CHANGED: Final = (
    "retries_left",
    "number_of_retries",
    "repeats_left",
    "repeat_intervals",
    "enqueue_at_front_on_retry",
    "enqueued_at",
)


class Endings(Protocol):
    """How executions end in RQ's record, besides the usual way."""

    def follow_up(self, job: WorkerJob) -> str:
        """What RQ's code does after its transaction, where that was cut short; safe to repeat. The stored status."""
        ...

    def give_up(self, job: WorkerJob, cause: BaseException) -> str:
        """End a job of whose record RQ's code can make nothing; its status."""
        ...


class _Pauses:
    """Growing pauses."""

    def __init__(self) -> None:
        self._next_s = FIRST_PAUSE_S

    def wait(self) -> None:
        time.sleep(self._next_s)
        self._next_s = min(self._next_s * 2, LONGEST_PAUSE_S)


class Storing:
    """Repeats a transaction until it is known to be stored, or the claim is known to be gone."""

    def __init__(self, connection: FencedRedis, keys: Keys, executor: str, endings: Endings) -> None:
        self._connection = connection
        self._endings = endings
        self._outage = Outage()
        self._keys = keys
        self._executor = executor
        self._claims_key = keys.claims(executor)

    def store(self, job: WorkerJob, write: Callable[[], str]) -> str:
        """
        Run ``write`` under the claim; the status it returns, or "lost" if the claim went to another.

        Of a job that was deleted meanwhile ``write`` is told by the fence, and asked once more.
        Blocks while Redis is away: the result of a job that ended is not given up. A reply that was lost
        is settled by asking whether the claim is still there; what follows the transaction is then made up for.
        """
        try:
            return self._store(job, write)
        finally:
            self._outage.over()

    def _store(self, job: WorkerJob, write: Callable[[], str]) -> str:
        with self._fenced(job) as fence:
            try:
                status, perhaps_stored = self._write(job, write, fence)
            except Exception as error:  # RQ's code raises anything for a damaged record
                log.exception("job %s cannot be stored in the usual way", job.id)
                if not fence.settled:
                    return self._give_up(job, error, fence)
                status, perhaps_stored = "", True
            if status or not perhaps_stored:
                return status or "lost"
            fence.settled = True
            return self._make_up(job)

    def give_back(self, job_id: str, why: scripts.Why, detail: str) -> str:
        """
        Release the only claim of this executor, whose job did not live to its end; "requeued", "lost" or "deleted".

        Blocks while Redis is away; repeated after a lost reply it finds nothing left to release.
        """
        pauses = _Pauses()
        while True:
            try:
                outcomes = dict(
                    scripts.release(
                        self._connection, self._keys, self._executor, running=job_id, why=why, detail=detail, dead=False
                    )
                )
                break
            except REDIS_ERRORS as error:
                log.warning("job %s is not given back yet, trying again: %s", job_id, error)
                cast(Any, self._connection).connection_pool.disconnect()
            pauses.wait()
        outcome = outcomes.get(job_id, "gone")
        if outcome == "front" or (outcome == "settle" and why == "crash"):
            kind = EventKind.JOB_REQUEUED if outcome == "front" else EventKind.JOB_LOST
            happened = events.event(kind, worker=self._executor, job_id=job_id, detail=detail)
            events.emit(self._connection, self._keys, happened)
        return {"front": "requeued", "settle": "lost", "gone": "deleted"}[outcome]

    def _write(self, job: WorkerJob, write: Callable[[], str], fence: Fence) -> tuple[str, bool]:
        """
        Until it is stored or cannot be any more: the status ("" where it is not known), and whether it may be stored.

        What RQ's code changed on the job for a transaction that did not commit is changed back.
        """
        before = {name: getattr(job, name) for name in _CHANGED}
        pauses, perhaps_stored = _Pauses(), False
        while True:
            status = self._try(job, write, fence)
            if fence.settled:
                return status or "", True
            perhaps_stored = perhaps_stored or status != _REFUSED or fence.perhaps_settled
            cast(Any, self._connection).connection_pool.disconnect()  # whatever failed: ask on a new one
            if self._claim_stands(job.id) is False:
                return "", perhaps_stored
            for name, value in before.items():
                setattr(job, name, value)
            pauses.wait()

    def _give_up(self, job: WorkerJob, cause: Exception, fence: Fence) -> str:
        try:
            return self._write(job, partial(self._endings.give_up, job, cause), fence)[0] or "failed"
        except Exception:
            log.exception("job %s: nothing can be made of its record; it is left as it is", job.id)
        pauses = _Pauses()
        while True:  # as long as the claim stands, the job would run again
            try:
                cast(Any, self._connection).lrem(self._claims_key, 1, job.id)
                return "lost"
            except REDIS_ERRORS as error:
                log.warning("the claim on job %s is not given up yet, trying again: %s", job.id, error)
            pauses.wait()

    def _make_up(self, job: WorkerJob) -> str:
        """Do what follows the transaction, however often it takes; the status that is stored."""
        pauses, refusals = _Pauses(), 0
        while True:
            try:
                return self._endings.follow_up(job)
            except _UNREACHABLE as error:
                self._outage.tell("job %s is stored, what follows is not done yet, trying again: %s", job.id, error)
            except redis.RedisError as error:
                refusals += 1
                if refusals == _REFUSALS:
                    log.error("job %s is stored; its dependents wait for the next maintenance: %s", job.id, error)
                    return "lost"
            pauses.wait()

    @contextmanager
    def _fenced(self, job: WorkerJob) -> Generator[Fence]:
        fence = self._connection.fence = Fence(self._claims_key, job.id)
        job.storing = True
        try:
            yield fence
        finally:
            job.storing = False
            self._connection.fence = None

    def _try(self, job: WorkerJob, write: Callable[[], str], fence: Fence) -> str | None:
        """What ``write`` returned; None where Redis failed, which may have been after it had stored."""
        try:
            return write()
        except Refused as error:
            log.warning("%s", error)
            return _REFUSED
        except REDIS_ERRORS as error:
            if is_about_the_data(error):
                raise
            if not fence.settled:
                self._outage.tell("job %s is not stored yet, trying again: %s", job.id, error)
            return None

    def _claim_stands(self, job_id: str) -> bool | None:
        """Whether the claim is there; None while Redis does not answer."""
        try:
            return cast(Any, self._connection).lpos(self._claims_key, job_id) is not None
        except REDIS_ERRORS:
            return None
