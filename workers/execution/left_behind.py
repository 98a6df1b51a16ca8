"""Dependents of a failed job that nobody enqueued: who ran it vanished with its host after it had stored the failure.

RQ moves the dependents of a success in the transaction that stores it, those of a failure afterwards.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Final, cast

from redis import Redis, WatchError
from rq import Queue
from rq.job import JobStatus

from envq.store import keys as rq
from envq.workers.execution.worker_job import WorkerJob

MOST: Final = 1000  # of a queue at once, the oldest first

log = logging.getLogger("envq.worker")


def enqueue_left_behind(connection: Redis, queue: Queue) -> list[str]:
    """Enqueue what waits in vain; the ids. Three round trips where nothing does; raises RedisError."""
    client = cast(Any, connection)
    ids = [entry.decode() for entry in client.zrange(queue.deferred_job_registry.key, 0, MOST - 1)]
    with client.pipeline(transaction=False) as pipeline:
        for job_id in ids:
            pipeline.hmget(rq.job(job_id), "allow_dependency_failures", "dependency_ids")
        records: list[list[bytes | None]] = pipeline.execute()
    parents = {job_id: _parents(*record) for job_id, record in zip(ids, records, strict=True)}
    wanted = sorted({parent for some in parents.values() for parent in some})
    with client.pipeline(transaction=False) as pipeline:
        for parent in wanted:
            pipeline.hget(rq.job(parent), "status")
        ended = {parent for parent, status in zip(wanted, pipeline.execute(), strict=True) if _has_ended(status)}
    moved = [job_id for job_id, some in parents.items() if some and ended.issuperset(some)]
    moved = [job_id for job_id in moved if _make_ready(client, queue, job_id, parents[job_id])]
    if moved:
        log.warning("jobs %s had waited in vain for jobs that failed: enqueued", ", ".join(moved))
        queue.ready_job_registry.cleanup()
    return moved


def _parents(allow_failures: bytes | None, ids: bytes | None) -> list[str]:
    """Of a job that runs although they fail; others wait for ever, as in RQ."""
    return cast(list[str], json.loads(ids)) if ids and allow_failures == b"1" else []


def _has_ended(status: bytes | None) -> bool:
    return status in (JobStatus.FINISHED.value.encode(), JobStatus.FAILED.value.encode())


def _make_ready(client: Any, queue: Queue, job_id: str, parents: list[str]) -> bool:
    """Unless somebody is about to, or a parent runs again."""
    job, watched = WorkerJob.named(job_id, client), [rq.job(each) for each in (job_id, *parents)]
    job.origin = queue.name
    with client.pipeline() as pipeline:
        pipeline.watch(*watched)
        if pipeline.hget(rq.job(job_id), "status") != JobStatus.DEFERRED.value.encode():
            return False
        if not all(_has_ended(pipeline.hget(rq.job(parent), "status")) for parent in parents):
            return False
        pipeline.multi()
        queue.ready_job_registry.register_jobs([job], pipeline)
        for parent in parents:
            pipeline.srem(WorkerJob.dependents_key_for(parent), job_id)
        try:
            pipeline.execute()
        except WatchError:
            return False
    return True
