"""Reads what ``envq info`` shows, without changing anything.

Never through RQ's objects: fetching a job unpickles, and a registry's count runs the maintenance of that registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from redis.client import Pipeline

from envq.cli.target import Target
from envq.settings import DEFAULT_NAMESPACE
from envq.store import keys as rq
from envq.store.connection import ServerFacts, server_facts
from envq.store.declarations import Snapshot
from envq.store.executor_store import ExecutorView
from envq.store.scripts import silent_executors

REGISTRIES: Final = ("wip", "failed", "scheduled", "deferred", "finished")


@dataclass(frozen=True)
class QueueCounts:
    """How many jobs of a queue are where."""

    name: str
    queued: int
    started: int
    failed: int
    scheduled: int
    deferred: int
    finished: int


@dataclass(frozen=True)
class RunningJob:
    """What an executor runs right now."""

    id: str
    description: str
    queue: str
    started_at: str


@dataclass(frozen=True)
class Overview:
    """One reading of a deployment."""

    server: ServerFacts
    suspended: bool
    queues: list[QueueCounts]
    executors: list[ExecutorView]
    running: dict[str, RunningJob]  # by executor
    snapshot: Snapshot


def read(target: Target) -> Overview:
    """All of it, in a few round trips whatever the number of jobs."""
    facts = server_facts(target.connection, target.settings.url, target.settings.url_source)
    executors = living(target)
    return Overview(
        server=facts,
        suspended=bool(target.connection.exists(rq.SUSPENDED)),
        queues=_counts(target, _queue_names(target, executors)),
        executors=executors,
        running=_running(target, [view.info.name for view in executors]),
        snapshot=target.declarations.snapshot(),
    )


def living(target: Target) -> list[ExecutorView]:
    """Executors that gave a sign of life of late."""
    silent = set(silent_executors(target.connection, target.keys))
    return [view for view in target.executors.all() if view.info.name not in silent]


def _queue_names(target: Target, executors: Iterable[ExecutorView]) -> list[str]:
    """RQ's names of this namespace's queues; in the default namespace all there are."""
    stored = cast(set[bytes], cast(Any, target.connection).smembers(rq.QUEUES))
    names = {key.decode(errors="replace").removeprefix(rq.QUEUE_PREFIX) for key in stored}
    if target.settings.namespace != DEFAULT_NAMESPACE:
        names = {name for name in names if name.startswith(target.keys.queue_name(""))}
    listened = {target.keys.queue_name(name) for view in executors for name in view.info.queues}
    return sorted(names | listened)


def _counts(target: Target, names: Sequence[str]) -> list[QueueCounts]:
    with _pipeline(target) as pipeline:
        for name in names:
            pipeline.llen(rq.queue(name))
            for kind in REGISTRIES:
                pipeline.zcard(registry(kind, name))
        numbers = iter(cast(list[int], pipeline.execute()))
    prefix = target.keys.queue_name("")
    return [
        QueueCounts(name.removeprefix(prefix), *(next(numbers) for _ in range(len(REGISTRIES) + 1))) for name in names
    ]


def _pipeline(target: Target) -> Pipeline:
    return cast(Any, target.connection).pipeline(transaction=False)


def registry(kind: str, queue_name: str) -> str:
    """Sorted set of job ids; RQ names all its registries alike."""
    return f"{rq.RQ_KEY_PREFIX}:{kind}:{queue_name}"


def _running(target: Target, names: Sequence[str]) -> dict[str, RunningJob]:
    with _pipeline(target) as pipeline:
        for name in names:
            pipeline.smembers(rq.worker_executions(name))
        sets = cast(list[set[bytes]], pipeline.execute())
    ids = {
        name: min(found).decode(errors="replace").rpartition(":")[0]
        for name, found in zip(names, sets, strict=True)
        if found
    }
    with _pipeline(target) as pipeline:
        for job_id in ids.values():
            pipeline.hmget(rq.job(job_id), "description", "origin", "started_at")
        rows = cast(list[list[bytes | None]], pipeline.execute())
    return {name: _job(target, job_id, row) for (name, job_id), row in zip(ids.items(), rows, strict=True)}


def _job(target: Target, job_id: str, row: Sequence[bytes | None]) -> RunningJob:
    description, origin, started_at = ((field or b"").decode(errors="replace") for field in row)
    return RunningJob(job_id, description, origin.removeprefix(target.keys.queue_name("")), started_at)
