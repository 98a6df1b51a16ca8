"""RQ's record of an execution: started, stored, failed, retried; the one subclass of RQ's worker.

RQ's own code settles callbacks, dependents, retries, repeats and registries; it writes through a fenced
client, in the same transaction that removes the claim.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Final, cast

from redis import Redis
from redis.client import Pipeline
from rq import Queue, callbacks, job_lifecycle, registry, worker_registration
from rq.defaults import DEFAULT_FAILURE_TTL
from rq.executions import Execution
from rq.job import Job, JobStatus, Retry
from rq.rate_limit import RateLimitRegistry, release_slot
from rq.results import Result
from rq.worker import BaseWorker

from envq.clock import iso, utc_now
from envq.code.serializer import serializer
from envq.errors import PayloadError, headline
from envq.jobs.enqueue_options import extra_life_s
from envq.jobs.job import Job as EnvqJob
from envq.jobs.signed import require_signed
from envq.store import events, scripts
from envq.store.code_store import CodeStore
from envq.store.connection import REDIS_ERRORS, is_about_the_data
from envq.store.exchange import Claimed
from envq.store.keys import Keys
from envq.store.records import Event, EventKind
from envq.workers.execution.deadline import Deadlines
from envq.workers.execution.fence import FencedPipeline, FencedRedis
from envq.workers.execution.raised import RaisedInCopy
from envq.workers.execution.rq_pieces import WatchedQueue, callback_limit
from envq.workers.execution.worker_job import WorkerJob
from envq.workers.stranded import follow_up_stranded

MARKS: Final = ("envq_crashes", "envq_settle", "envq_alone", "envq_expires")  # of an execution that has not ended
MAINTENANCE_LOCK_S: Final = 60
_ENDED: Final = frozenset({JobStatus.FINISHED, JobStatus.FAILED, JobStatus.STOPPED})

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]

log = logging.getLogger("envq.job")
_quiet = logging.getLogger("envq.rq")  # RQ writes four lines a job; ours are in middleware/job_log.py
_quiet.setLevel(logging.WARNING)


class RqPath(BaseWorker):
    """Keeps RQ's record for one executor."""

    queue_class = Queue
    job_class = WorkerJob
    connection: FencedRedis

    def __init__(
        self, name: str, queue_names: Sequence[str], connection: FencedRedis, keys: Keys, deadlines: Deadlines
    ) -> None:
        queues = [
            Queue(queue, connection=connection, job_class=EnvqJob, serializer=serializer) for queue in queue_names
        ]
        super().__init__(
            cast(Any, queues),
            name=name,
            connection=connection,
            prepare_for_work=False,
        )
        self.serializer = serializer  # RQ's constructor takes classes only
        self.log = _quiet
        self.log_result_lifespan = False
        self.death_penalty_class = callback_limit(deadlines)
        self.hostname, self.pid, self.ip_address = socket.gethostname(), os.getpid(), "unknown"
        self._envq_keys = keys
        self._code = CodeStore(connection, keys)
        self._event: Event | None = None
        self._latest: Execution | None = None  # the one that is stored

    def _set_connection(self, connection: Redis) -> Redis:
        return connection  # RQ would change the socket timeout of the caller's pool

    # -- the life of one execution ------------------------------------------------------------------

    def load(self, claimed: Claimed) -> WorkerJob:
        """The job as RQ's object; raises what RQ raises for a record it cannot read, PayloadError for one refused."""
        require_signed(claimed.job_id, claimed.fields)
        job = WorkerJob.of(claimed, self.connection, self.name, utc_now().timestamp())
        job.fill()
        return job

    def queue_of(self, job: WorkerJob) -> Queue:
        """The queue the job came from."""
        return WatchedQueue(job.origin, connection=self.connection, job_class=WorkerJob, serializer=serializer)

    def note(self, execution: Execution) -> None:
        """The execution whose end is stored next."""
        self.executions[execution.id] = self._latest = execution

    def success(self, job: WorkerJob, execution: Execution, value: Any) -> str:
        """Store a result, or the retry that the job returned; the job's status afterwards."""
        if self._was_deleted:
            return self._abandon(job, execution)
        queue = self.queue_of(job)
        started: Any = job.started_job_registry
        cast(Any, job)._result = value
        if isinstance(value, Retry):
            self._keep_code(job, value.intervals)
            self._event = self._ended(EventKind.JOB_RETRIED, job, execution)
            self.handle_job_retry(job=job, queue=queue, retry=value, started_job_registry=started, execution=execution)
            return "retried"
        if job.repeats_left:
            self._keep_code(job, job.repeat_intervals)
        self._event = self._ended(EventKind.JOB_FINISHED, job, execution)
        job.remember_status(JobStatus.FINISHED)
        self.handle_job_success(job=job, queue=queue, started_job_registry=started, execution=execution)
        return "finished"

    def failure(self, job: WorkerJob, execution: Execution | None, error: ExcInfo, *, stopped: bool) -> str:
        """Store a failure, a stop, or schedule the retry that is left; the job's status afterwards."""
        if self._was_deleted:
            return self._abandon(job, execution)
        self._keep_code(job, job.retry_intervals)
        retried = job.should_retry and not stopped
        status = "stopped" if stopped else "retried" if retried else "failed"
        self._event = self._ended(EventKind(f"job.{status}"), job, execution, detail=headline(error[1]))
        job.remember_status(JobStatus.FAILED)
        if stopped:
            self._stopped_job_id = job.id
        self.handle_job_failure(
            job=job,
            queue=self.queue_of(job),
            started_job_registry=cast(Any, job.started_job_registry),
            exc_string=formatted(error),
            execution=execution,
        )
        return status

    def follow_up(self, job: WorkerJob) -> str:
        """What RQ's code does after its transaction, where that was cut short; safe to repeat. The stored status."""
        status = cast(JobStatus | None, job.get_status())
        if status in _ENDED:
            self._enqueue_dependents_safely(self.queue_of(job), job)
        # Whose move to the ready ones committed is known to nobody.
        for queue in {
            queue.name: queue for queue in (*self.queues, *Queue.all(self.connection, EnvqJob, serializer))
        }.values():
            queue.ready_job_registry.cleanup()
        if job.has_rate_limit:
            RateLimitRegistry.from_job(job).release_stale_and_enqueue(job.id)
        if status is None:
            return "finished"  # and not kept
        return status.value if status in _ENDED else "retried"

    def forget_settling(self, job: WorkerJob) -> None:
        """What followed the end of a job is done, so its claim ends."""
        with self.connection.pipeline(transaction=True) as pipeline:
            pipeline.hdel(job.key, "envq_settle")
            cast(Any, pipeline).lrem(self._envq_keys.claims(self.name), 1, job.id)
            pipeline.execute()

    def _enqueue_dependents_safely(self, queue: Queue, job: Job) -> None:
        """As in RQ, but a failure of Redis is no end: it comes through, and it is tried again."""
        try:
            queue.enqueue_dependents(job)
        except Exception as error:
            if isinstance(error, REDIS_ERRORS) and not is_about_the_data(error):
                raise
            log.exception("job %s is stored; its dependents cannot be enqueued", job.id)

    def _release_slot_safely(self, job: Job) -> None:
        """A failure of Redis comes through as well."""
        release_slot(job)

    def give_up(self, job: WorkerJob, cause: BaseException) -> str:
        """End a job whose record is damaged as failed, writing no more than it takes to be seen as such."""
        if self._was_deleted:
            return self._abandon(job, None)
        error = PayloadError(f"the record of job {job.id} cannot be used: {headline(cause)}")
        # RQ has forgotten it while it made the transaction that could not be finished.
        execution = self._latest if self._latest is not None and self._latest.job_id == job.id else None
        self._event = self._ended(EventKind.JOB_FAILED, job, execution, detail=headline(error))
        until = utc_now() + timedelta(seconds=DEFAULT_FAILURE_TTL)
        with self.connection.pipeline() as pipeline:
            pipeline.hset(job.key, mapping={"status": JobStatus.FAILED.value, "ended_at": iso(utc_now())})
            pipeline.zadd(job.failed_job_registry.key, {job.id: until.timestamp()})
            Result.create_failure(job, DEFAULT_FAILURE_TTL, _traceback(error), worker_name=self.name, pipeline=pipeline)
            self.increment_failed_job_count(pipeline)
            self.cleanup_execution(job, pipeline, execution)
            pipeline.execute()
        log.error("%s", error)
        return "failed"

    def _keep_code(self, job: WorkerJob, delays_s: Sequence[int] | None) -> None:
        """A job that is kept as failed, or runs again after one of these delays, may need its code for long."""
        if not job.code_digest:
            return
        extra_s = extra_life_s(job.failure_ttl)
        self._code.renew(job.code_digest, for_s=extra_s if extra_s < 0 else max(extra_s, *(delays_s or [0])))

    def success_callback(self, job: WorkerJob, value: Any) -> None:
        """Run ``on_success``; what it raises makes the job fail, as in RQ."""
        if not isinstance(value, Retry):
            cast(Any, job)._result = value
            job.remember_status(JobStatus.FINISHED)
            callbacks.execute_success_callback(job, self.death_penalty_class, value)

    def failure_callback(self, job: WorkerJob, error: ExcInfo, *, stopped: bool) -> ExcInfo:
        """Run ``on_failure`` or ``on_stopped``; what it raises takes the place of the job's error, as in RQ."""
        job.remember_status(JobStatus.FAILED)
        try:
            if stopped:
                callbacks.execute_stopped_callback(job, self.death_penalty_class)
            else:
                callbacks.execute_failure_callback(job, self.death_penalty_class, *error)
        except BaseException:  # noqa: BLE001 - user code
            return cast(ExcInfo, sys.exc_info())
        return error

    @property
    def _was_deleted(self) -> bool:
        fence = self.connection.fence
        return fence is not None and fence.deleted

    def _abandon(self, job: WorkerJob, execution: Execution | None) -> str:
        """End an execution whose job was deleted: the traces of it go, and nothing of the job comes back."""
        self._event = None
        with self.connection.pipeline() as pipeline:
            self.cleanup_execution(job, pipeline, execution)
            pipeline.execute()
        self._release_slot_safely(job)
        return "deleted"

    def cleanup_execution(self, job: Any, pipeline: Pipeline, execution: Execution | None = None) -> None:
        """Called by RQ inside each transaction that ends an execution: the claim ends with it."""
        super().cleanup_execution(job, pipeline, execution)
        pipeline.hdel(job.key, *MARKS)
        if self._event is not None:
            events.append(pipeline, self._envq_keys, self._event)
        cast(FencedPipeline, pipeline).end_claim()

    # -- the life of the executor ---------------------------------------------------------------------

    def register_birth(self) -> None:
        """Write RQ's worker record; also again, where it was lost. The name is never used twice."""
        self.birth_date = self.birth_date or utc_now()
        self.last_heartbeat = utc_now()
        with self.connection.pipeline() as pipeline:
            pipeline.hset(self.key, mapping=cast(Any, self.serialize() | {"state": "idle"}))
            pipeline.expire(self.key, scripts.WORKER_TTL_S)
            worker_registration.register(self, pipeline)
            pipeline.execute()

    def maintain(self) -> None:
        """RQ's own registry maintenance, for queues nobody else maintains at this moment."""
        for queue in self.queues:
            # RQ's lock, but not for its 15 minutes: whoever dies with it holds up maintenance.
            if cast(Any, self.connection).set(queue.registry_cleaning_key, 1, nx=True, ex=MAINTENANCE_LOCK_S):
                try:
                    registry.clean_registries(queue)
                    worker_registration.clean_worker_registry(queue)
                finally:
                    queue.release_maintenance_lock()
        self.clean_group_registries()
        follow_up_stranded(self.connection, self._envq_keys)  # found in the settle list by the next claim
        self.last_cleaned_at = cast(Any, datetime.now(UTC))

    def _ended(self, kind: EventKind, job: WorkerJob, execution: Execution | None, detail: str = "") -> Event:
        started, ended = job.started_at, job.ended_at
        duration = (ended - started).total_seconds() * 1000 if started and ended else 0.0
        return events.event(
            kind,
            worker=self.name,
            job_id=job.id,
            execution_id=execution.id if execution else "",
            queue=job.origin,
            func=job.title,
            duration_ms=round(duration, 3),
            detail=detail,
        )


def formatted(error: ExcInfo) -> str:
    """A traceback, here or where the exception was raised."""
    if isinstance(error[1], RaisedInCopy):
        return error[1].formatted
    return job_lifecycle.format_exc_info(error)


def _traceback(error: BaseException) -> str:
    return job_lifecycle.format_exc_info((type(error), error, error.__traceback__))
