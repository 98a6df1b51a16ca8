"""A job is enqueued once, also where the reply to its enqueuing got lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, cast

import redis
from rq.exceptions import DuplicateJobError
from rq.job import JobStatus

from envq.clock import iso
from envq.jobs.job import Job
from envq.store.driver_client import InDoubt, sent_once
from envq.store.trouble import ServerLost

TRIES: Final = 3


def enqueue_once(connection: redis.Redis, job: Job[Any], enqueue: Callable[[], Job[Any]]) -> Job[Any]:
    """
    Run RQ's code, which writes the record and pushes the id in one transaction, until it is known to be committed.

    redis-py would send the transaction again; by then the job may have run, and it would run twice. Raises
    ServerUnavailable where the server cannot be asked. Of a job that is gone already nobody knows that it was there.
    """
    status, enqueued_at = cast(Any, job)._status, job.enqueued_at
    for left in reversed(range(TRIES)):
        try:
            with sent_once():
                return enqueue()
        except InDoubt as error:
            if _is_committed(connection, job, enqueued_at):
                return job
            if not left:
                raise ServerLost(f"{error}; whether job {job.id} is enqueued is not known") from None
            cast(Any, job)._status = status
    raise AssertionError


def enqueue_unique(connection: redis.Redis, job: Job[Any], enqueue: Callable[[], Job[Any]]) -> Job[Any]:
    """The same for a job whose id must be new: RQ's script, sent again after a lost reply, finds what it wrote."""
    made = getattr(connection.connection_pool, "made", 0)
    try:
        return enqueue()
    except DuplicateJobError:
        was_lost = getattr(connection.connection_pool, "made", 0) != made
        created = cast(bytes | None, connection.hget(job.key, "created_at")) if was_lost else None
        if created != iso(job.created_at).encode():
            raise
        return job


def _is_committed(connection: redis.Redis, job: Job[Any], enqueued_before: datetime | None) -> bool:
    """Whether the record is the one that was sent, or what became of it."""
    fields = cast(list[bytes | None], connection.hmget(job.key, "created_at", "enqueued_at"))
    created, enqueued = ((field or b"").decode() for field in fields)
    if created != iso(job.created_at):
        return False
    if cast(Any, job)._status == JobStatus.DEFERRED:
        return True
    # Later: it ran, and was put back or retried.
    at = job.enqueued_at
    return at is not None and at != enqueued_before and enqueued >= iso(at)
