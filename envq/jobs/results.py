"""``envq.get``: waits for results where workers put them, in RQ's stream of each job."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeVar, cast, overload

import redis
import rq.job
from rq.exceptions import NoSuchJobError
from rq.job import JobStatus

from envq.clock import check_patience
from envq.code.signing import job_keys
from envq.errors import (
    GetTimeout,
    JobCancelled,
    JobError,
    JobFailed,
    JobGone,
    JobStopped,
    PayloadError,
    ResultNotKept,
)
from envq.jobs.inline_job import InlineJob
from envq.jobs.job import FROM_START, Job
from envq.jobs.listeners import deserted
from envq.jobs.outcome import Entry, Outcome, failure, is_before
from envq.jobs.outcome import read as read_entry
from envq.store.connection import at_most, connection_options
from envq.store.keys import results as results_key
from envq.store.keys import workers_of

R = TypeVar("R")

WINDOW: Final = 256  # streams in one read; the jobs behind them are looked at when their turn comes
FIRST_CHECK_S: Final = 0.1  # a job that can have no result any more is noticed so soon, then
CHECK_S: Final = 1.0
RECONNECT_S: Final = 0.2
HINT_AFTER_S: Final = 5.0  # executors may be about to start

log = logging.getLogger("envq")


@overload
def get(job_or_jobs: Job[R], timeout: float | None = None, return_exceptions: Literal[False] = False) -> R: ...
@overload
def get(job_or_jobs: str, timeout: float | None = None, return_exceptions: bool = False) -> Any: ...
@overload
def get(
    job_or_jobs: Iterable[Job[R]], timeout: float | None = None, return_exceptions: Literal[False] = False
) -> list[R]: ...
@overload
def get(job_or_jobs: Job[R], timeout: float | None = None, *, return_exceptions: bool) -> R | Exception: ...
@overload
def get(
    job_or_jobs: Iterable[Job[R]], timeout: float | None = None, *, return_exceptions: bool
) -> list[R | Exception]: ...
@overload
def get(
    job_or_jobs: Iterable[Job[Any] | str], timeout: float | None = None, return_exceptions: bool = False
) -> list[Any]: ...
def get(
    job_or_jobs: Job[Any] | str | Iterable[Job[Any] | str],
    timeout: float | None = None,
    return_exceptions: bool = False,
) -> Any:
    """
    Wait for the result of a job, or of several, in their order.

    The result is of this execution: never one from before the job was enqueued or requeued. Of a job that
    was fetched after it had ended it is the latest; a job may also be given by its id.

    Args:
        timeout: seconds for all of it; None waits for ever, through lost connections too
        return_exceptions: put what a job would raise into its place, as asyncio.gather does

    Raises ValueError for a timeout that is no number; JobFailed (with the remote traceback), WorkerLost, JobStopped,
    JobCancelled, JobGone, ResultNotKept, PayloadError for a result that cannot be unpickled here, and GetTimeout.
    """
    check_patience(timeout)
    given = [job_or_jobs] if isinstance(job_or_jobs, Job | str) else _several(job_or_jobs)
    waiting = _Waiting(_as_jobs(given), timeout, stop_at_error=not return_exceptions)
    outcomes = waiting.outcomes()
    values = [each.error if each.error is not None and return_exceptions else each.unwrap() for each in outcomes]
    return values[0] if isinstance(job_or_jobs, Job | str) else values


class _Waiting:
    """One call of get."""

    def __init__(self, jobs: Sequence[Job[Any]], timeout: float | None, *, stop_at_error: bool) -> None:
        self._jobs = jobs
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._stop_at_error = stop_at_error
        self._began = time.monotonic()
        self._next_check = self._began + FIRST_CHECK_S
        self._open: dict[str, Job[Any]] = {}
        self._after = {job.id: job.result_after for job in jobs}
        self._ended: dict[str, Outcome] = {}
        self._statuses: dict[str, str] = {}
        self._hint = ""  # for a job that nobody will take
        self._warned = False

    def outcomes(self) -> list[Outcome]:
        """One for each job, in order; raises the first error that arrives if told to stop there."""
        self._open = {job.id: job for job in self._jobs}
        for job in self._jobs:
            if job.outcome_here is not None:
                self._end(job, job.outcome_here)
        while self._open:
            self._step()
        return [self._ended[job.id] for job in self._jobs]

    def _step(self) -> None:
        waiting = list(self._open.values())[:WINDOW]
        first = waiting[0]
        if isinstance(first, InlineJob):
            raise GetTimeout(f"{_named(first)} runs in this process and is {first.get_status().value}", first.id)
        # Jobs of one call may live on several servers; each has its turn.
        window = [job for job in waiting if job.connection is first.connection]
        last_look = self._left_s() <= 0
        lost: Exception | None = None
        try:
            with at_most(first.connection, 0):  # it is asked again here, as long as there is time
                self._look(first.connection, window)
        except (redis.ConnectionError, redis.TimeoutError) as error:
            lost = error
            time.sleep(max(0.0, min(RECONNECT_S, self._left_s())))
        if last_look and self._open:
            raise self._timed_out() from lost

    def _look(self, connection: redis.Redis, window: Sequence[Job[Any]]) -> None:
        now = time.monotonic()
        if now >= self._next_check or self._left_s() <= 0:
            self._next_check = now + CHECK_S
            self._check(connection, window)
            return
        block_s = min(self._next_check - now, self._left_s(), _patience_s(connection))
        self._take(window, cast(Any, connection).xread(self._positions(window), block=max(1, round(block_s * 1000))))

    def _check(self, connection: redis.Redis, window: Sequence[Job[Any]]) -> None:
        """Look at the records: a job that is cancelled, or gone, gets no result; nor does one that nobody takes."""
        queued = next((job for job in window if self._statuses.get(job.id) == JobStatus.QUEUED), window[0])
        # No transaction: before Redis 7.2 one is refused whole at maxmemory. Statuses first: what had ended by then has
        # its result in the streams.
        with connection.pipeline(transaction=False) as pipeline:
            for job in window:
                pipeline.hget(job.key, "status")
            cast(Any, pipeline).xread(self._positions(window))
            pipeline.exists(workers_of(queued.origin))
            *statuses, streams, listened_on = pipeline.execute()
        self._take(window, streams)
        for job, status in zip(window, statuses, strict=True):
            self._statuses[job.id] = (status or b"").decode()
            if job.id in self._open and (error := _without_result(job, self._statuses[job.id])):
                self._end(job, self._from_before(connection, job) or Outcome(error=error))
        self._look_for_listeners(queued, listened_on=bool(listened_on))

    def _from_before(self, connection: redis.Redis, job: Job[Any]) -> Outcome | None:
        """The last result of a stream that ends before our position: Redis was restored, or its clock went back."""
        entries = cast("list[Entry]", cast(Any, connection).xrevrange(results_key(job.id), count=1))
        if not entries or not is_before(entries[0][0].decode(), self._after[job.id]):
            return None
        if job_keys() and _ran_before(job, entries[0][1]):
            return None
        ended = read_entry(entries[0][1], job.serializer, job.id, _function(job))
        return None if ended is None else _if_stopped(job, ended)

    def _look_for_listeners(self, job: Job[Any], *, listened_on: bool) -> None:
        """Warn once where nobody takes a job: its queue is misspelt, perhaps, or no worker runs."""
        self._hint = ""
        if listened_on or job.id not in self._open or self._statuses[job.id] != JobStatus.QUEUED:
            return
        late, last = time.monotonic() - self._began >= HINT_AFTER_S, self._left_s() <= 0
        if (late and not self._warned) or last:
            self._hint = deserted(job)
        if late and not self._warned:
            self._warned = True
            log.warning("%s", self._hint)

    def _positions(self, window: Sequence[Job[Any]]) -> dict[str, str]:
        return {results_key(job.id): self._after[job.id] for job in window}

    def _take(self, window: Sequence[Job[Any]], streams: Any) -> None:
        by_key = {results_key(job.id).encode(): job for job in window}
        for key, entries in _items(streams):
            job = by_key[key]
            for position, fields in entries:
                if job_keys() and _ran_before(job, fields):
                    text = f"the newest result of job {job.id} is a copy of one of an earlier run; it is not loaded"
                    self._end(job, Outcome(error=PayloadError(text)))
                    break
                ended = read_entry(fields, job.serializer, job.id, _function(job))
                if ended is not None:
                    self._end(job, _if_stopped(job, ended))
                    break
                self._after[job.id] = position.decode()  # not of an end: asking how it came may fail, and is repeated

    def _end(self, job: Job[Any], ended: Outcome) -> None:
        self._ended[job.id] = ended
        self._open.pop(job.id, None)
        if self._stop_at_error:
            ended.unwrap()

    def _left_s(self) -> float:
        return CHECK_S if self._deadline is None else self._deadline - time.monotonic()

    def _timed_out(self) -> GetTimeout:
        first = next(iter(self._open.values()))
        status = self._statuses.get(first.id) or "unknown"
        others = f", and {len(self._open) - 1} others of {len(self._jobs)}" if len(self._open) > 1 else ""
        hint = f"; {self._hint}" if self._hint else ""
        text = f"no result of {_named(first)} within {self._timeout:g} s; it is {status}{others}{hint}"
        return GetTimeout(text, first.id)


def _several(given: object) -> list[Job[Any] | str]:
    """The members of an iterable; TypeError for what is no job."""
    if not isinstance(given, Iterable):
        raise _no_job(given)
    members = list(cast("Iterable[object]", given))
    for each in members:
        if not isinstance(each, Job | str):
            raise _no_job(each)
    return cast("list[Job[Any] | str]", members)


def _no_job(given: object) -> TypeError:
    shown = "None" if given is None else f"an object of type {type(given).__name__}"
    if isinstance(given, rq.job.Job):
        return TypeError("envq.get takes envq's jobs, not one of rq: pass its id, job.id")
    name = getattr(given, "__name__", "task") if hasattr(given, "enqueue") else "task"
    return TypeError(
        f"envq.get takes a job, its id, or several of them, not {shown}; did you mean {name}.enqueue(...)?"
    )


def _as_jobs(given: Iterable[Job[Any] | str]) -> list[Job[Any]]:
    return [_fetched(each) if isinstance(each, str) else each for each in given]


def _fetched(job_id: str) -> Job[Any]:
    try:
        return Job[Any].fetch(job_id)
    except NoSuchJobError:
        raise JobGone(f"there is no job {job_id}: it was deleted or has expired, or never existed", job_id) from None


def _items(streams: Any) -> Iterable[tuple[bytes, list[Entry]]]:
    """The streams of a reply, as RESP2 and RESP3 clients give them."""
    if isinstance(streams, dict):
        pairs = cast("dict[bytes, Any]", streams).items()
        return [(key, entries[0] if entries and isinstance(entries[0], list) else entries) for key, entries in pairs]
    return cast("list[tuple[bytes, list[Entry]]]", streams or [])


def _without_result(job: Job[Any], status: str) -> JobError | None:
    """Why there will be no result, though none is in the stream."""
    if not status and job.result_ttl == 0:
        return ResultNotKept(f"{_named(job)} has ended; result_ttl=0 kept no result", job.id)
    if not status:
        return JobGone(f"the record of {_named(job)} was deleted or has expired", job.id)
    if status == JobStatus.CANCELED:
        return JobCancelled(f"{_named(job)} was cancelled", job.id)
    if status == JobStatus.STOPPED:
        return JobStopped(f"{_named(job)} was stopped", job.id)
    if status == JobStatus.FINISHED:
        return ResultNotKept(f"{_named(job)} has finished, but its result is not kept any more", job.id)
    if status == JobStatus.FAILED:
        return failure("", job.id, _function(job))
    return None


def _if_stopped(job: Job[Any], ended: Outcome) -> Outcome:
    """RQ stores the end of a job that was stopped as a failure; only its status tells them apart."""
    if isinstance(ended.error, JobFailed):
        status = cast(Any, job.connection).hget(job.key, "status")
        if status == JobStatus.STOPPED.value.encode():
            return Outcome(error=JobStopped(f"{_named(job)} was stopped", job.id))
    return ended


def _patience_s(connection: redis.Redis) -> float:
    """How long a blocking read may take before the client gives up on its socket."""
    timeout_s = connection_options(connection).get("socket_timeout")
    return CHECK_S if not timeout_s else timeout_s / 2


def _ran_before(job: Job[Any], fields: dict[bytes, bytes]) -> bool:
    """Whether a result of this execution stands before those that are waited for."""
    if job.result_after == FROM_START:
        return False
    earlier = cast("list[Entry]", cast(Any, job.connection).xrange(results_key(job.id), max=job.result_after))
    return any(entry.get(b"execution_id") == fields.get(b"execution_id") for _, entry in earlier)


def _function(job: Job[Any]) -> str:
    return job.description or "unknown function"


def _named(job: Job[Any]) -> str:
    return f"job {job.id} ({_function(job)})"
