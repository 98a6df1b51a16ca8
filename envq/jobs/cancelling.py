"""Ending a job that nobody wants any more: taken out of where it waits, stopped where it runs; nothing is unpickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from redis import Redis, WatchError
from redis.client import Pipeline
from rq import Queue
from rq.job import Job, JobStatus

from envq.store import keys as rq

# "waiting": it was cancelled; "running": its worker was told to stop it; "ended" before; "unknown": no such job.
Standing = Literal["waiting", "running", "ended", "unknown"]

_ENDED: Final = frozenset({JobStatus.FINISHED, JobStatus.FAILED, JobStatus.STOPPED, JobStatus.CANCELED})
_PICKLED: Final = frozenset({b"meta", b"result"})


@dataclass(frozen=True)
class Found:
    """How a job was found when it was to be cancelled."""

    standing: Standing
    status: str = ""  # RQ's, before
    executor: str = ""  # that runs it
    heard: bool = True  # the executor's worker, or anybody, listened


def cancel(connection: Redis, job_id: str, *, enqueue_dependents: bool = False) -> Found:
    """
    Cancel a job that waits, or have it stopped where it runs; it has ended only when its record says so.

    Args:
        enqueue_dependents: as RQ's; without it, what depends on the job waits for ever
    """
    while True:
        with connection.pipeline() as pipeline:
            try:
                return _cancel(connection, cast(Any, pipeline), job_id, enqueue_dependents)
            except WatchError:  # it was claimed, or ended, at this moment
                continue


def _cancel(connection: Redis, pipeline: Any, job_id: str, enqueue_dependents: bool) -> Found:
    job = _Record.named(job_id, connection)
    pipeline.watch(job.key, job.dependents_key)
    raw = cast(list[bytes | None], pipeline.hmget(job.key, "status", "worker_name"))
    status, executor = ((field or b"").decode(errors="replace") for field in raw)
    if not status:
        return Found("unknown")
    if status in _ENDED:
        return Found("ended", status)
    if status == JobStatus.STARTED:
        return Found("running", status, executor, heard=_stop(connection, job_id, executor))
    job.restore(pipeline.hgetall(job.key))
    _take_out(job, pipeline, enqueue_dependents=enqueue_dependents)
    return Found("waiting", status)


def _take_out(job: Job, pipeline: Any, *, enqueue_dependents: bool) -> None:
    if job.has_rate_limit:  # RQ lets the next one in behind its own transaction only
        job.cancel(enqueue_dependents=enqueue_dependents)
        return
    enqueue_dependents = enqueue_dependents and bool(pipeline.exists(job.dependents_key))
    if not enqueue_dependents:
        pipeline.multi()
    ready = job.cancel(cast(Pipeline, pipeline), enqueue_dependents=enqueue_dependents)
    pipeline.execute()
    queue = Queue(job.origin, connection=job.connection, job_class=_Record)
    queue.enqueue_ready_jobs_by_queue(ready)


def _stop(connection: Redis, job_id: str, executor: str) -> bool:
    """RQ's command; whether anybody listened. RQ's own function would unpickle the job's meta."""
    command = json.dumps({"command": "stop-job", "job_id": job_id})
    return bool(connection.publish(rq.worker_commands(executor), command))


class _Record(Job):
    """RQ's job without what is pickled in it; RQ does not write that either when it cancels and enqueues."""

    @classmethod
    def named(cls, job_id: str, connection: Redis) -> _Record:
        """Nothing is read. RQ's constructor refuses ids that its older versions took."""
        job = cls(connection=connection)
        job._id = job_id
        return job

    def restore(self, raw_data: Mapping[bytes, bytes]) -> Any:
        """Take the fields over."""
        return super().restore({name: value for name, value in raw_data.items() if name not in _PICKLED})
