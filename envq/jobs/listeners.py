"""Whether anybody is there for a job that waits in its queue, and what to say where nobody is."""

from __future__ import annotations

from typing import Any, cast

import redis
from rq.job import Job

from envq.store import keys as rq


def deserted(job: Job) -> str:
    """One sentence for a job that no executor will take; two round trips."""
    queues = ", ".join(_served(job.connection)) or "none"
    return (
        f"job {job.id} ({job.description or 'unknown function'}) waits in queue {job.origin!r}, on which no executor "
        f"listens; queues with executors: {queues}"
    )


def _served(connection: redis.Redis) -> list[str]:
    workers = cast("set[bytes]", connection.smembers(rq.WORKERS))
    with connection.pipeline(transaction=False) as pipeline:
        for worker in workers:
            pipeline.hget(worker.decode(), "queues")
        listened = cast("list[bytes | None]", cast(Any, pipeline).execute())
    return sorted({name for names in listened if names for name in names.decode().split(",")})
