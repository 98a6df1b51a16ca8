"""Deletes what a run made in Redis, and nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, cast

import redis

from envq.cli.benchmark.backlog import Backlog
from envq.cli.overview import REGISTRIES, registry
from envq.cli.target import Target
from envq.errors import ConfigurationError, GetTimeout, NotDeclared
from envq.jobs.results import get
from envq.store import keys as rq

CHUNK: Final = 500
RUNNING_PATIENCE_S: Final = 10.0  # for jobs that were taken before the run was broken off


def check_scan(control: redis.Redis) -> None:
    """Raise ConfigurationError where the user may not SCAN: what a worker leaves could not be found again."""
    try:
        cast(Any, control).scan(0, count=1)
    except redis.ResponseError as error:
        raise ConfigurationError(
            f"this user of Redis may not SCAN, without which envq bench cannot clear up after its worker ({error}); "
            "allow it, or measure running workers with --no-worker"
        ) from None


def clear_own(control: redis.Redis, backlog: Backlog, mark: str) -> None:
    """After our own worker has stopped: its jobs by their ids, then every key with the run's name in it."""
    name = backlog.queue_key.removeprefix(rq.QUEUE_PREFIX)
    ids = {job.id for job in backlog.jobs}
    for key in (backlog.held_key, backlog.queue_key):
        ids.update(_listed(control, key))
    running: list[str] = []
    for kind in REGISTRIES:
        for member, _ in cast(Any, control).zscan_iter(registry(kind, name), count=CHUNK):
            job_id, _, execution_id = member.decode().partition(":")
            ids.add(job_id)
            if execution_id:
                running.append(rq.execution(job_id, execution_id))
    _delete(control, [*_job_keys(ids), *running])
    for key in (rq.QUEUES, rq.WORKERS):
        _remove(control, key, [member.decode() for member in cast(Any, control).sscan_iter(key, match=f"*{mark}*")])
    _delete(control, [key.decode() for key in cast(Any, control).scan_iter(match=f"*{mark}*", count=CHUNK)])


def clear_running(control: redis.Redis, backlog: Backlog, *, queue_was_known: bool) -> None:
    """On workers that go on: their queue and its registries are left without our jobs, otherwise as they are."""
    held = _listed(control, backlog.held_key)
    waiting = _take_back(control, backlog)
    _let_end(backlog, {*held, *waiting})
    ids = list({*(job.id for job in backlog.jobs), *held})
    name = backlog.queue_key.removeprefix(rq.QUEUE_PREFIX)
    for chunk in _chunks(ids):
        with control.pipeline(transaction=False) as pipeline:
            for kind in REGISTRIES:
                pipeline.zrem(registry(kind, name), *chunk)
            pipeline.execute()
    _delete(control, [*_job_keys(ids), backlog.held_key])
    _remove(control, rq.QUEUES, [backlog.held_key] if queue_was_known else [backlog.held_key, backlog.queue_key])


def remove_variable(target: Target, name: str) -> None:
    """Undeclare it, and delete its code where no other variable has the same."""
    try:
        removed = target.declarations.remove(name)
    except NotDeclared:
        return
    others = target.declarations.snapshot().declarations.values()
    if all(each.digest != removed.digest for each in others):
        target.connection.delete(target.keys.code(removed.digest))


def _take_back(control: redis.Redis, backlog: Backlog) -> list[str]:
    """Take from the queue what still waits: from the end, where ours stand, so that each is found at once."""
    ours = {job.id for job in backlog.jobs}
    waiting = [job_id for job_id in reversed(_listed(control, backlog.queue_key)) if job_id in ours]
    taken: list[str] = []
    for chunk in _chunks(waiting):
        with control.pipeline(transaction=False) as pipeline:
            for job_id in chunk:
                pipeline.lrem(backlog.queue_key, -1, job_id)
            # A worker may have been faster: that job is not ours to delete yet.
            taken += [job_id for job_id, found in zip(chunk, pipeline.execute(), strict=True) if found]
    return taken


def _let_end(backlog: Backlog, never_taken: set[str]) -> None:
    """What an executor has taken runs to its end: without its record it would stumble."""
    with contextlib.suppress(GetTimeout):
        taken = [job for job in backlog.jobs if job.id not in never_taken]
        get(taken, timeout=RUNNING_PATIENCE_S, return_exceptions=True)


def _listed(control: redis.Redis, key: str) -> list[str]:
    return [member.decode() for member in cast(list[bytes], control.lrange(key, 0, -1))]


def _job_keys(ids: Iterable[str]) -> Iterator[str]:
    for job_id in ids:
        yield from (rq.job(job_id), rq.results(job_id), rq.executions(job_id))


def _remove(control: redis.Redis, key: str, members: Sequence[str]) -> None:
    if members:
        control.srem(key, *members)


def _delete(control: redis.Redis, keys: Iterable[str]) -> None:
    for chunk in _chunks(keys):
        control.unlink(*chunk)


def _chunks(names: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(names)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk
