"""
Dependents that wait for jobs that have ended: whoever stored the end died before it could enqueue them.

RQ enqueues them after the transaction that stores the end, and with that the claim is gone. Where an executor died by
itself its slot still names the job; of a host that vanished nothing does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

from redis import Redis

from envq.store import keys as rq
from envq.store.keys import Keys
from envq.store.scripts import follow_up

CHUNK: Final = 500  # jobs a round trip


@dataclass(frozen=True)
class _Dependent:
    parents: list[str]
    met_by: frozenset[bytes]  # statuses

    @classmethod
    def read(cls, fields: Any) -> _Dependent:
        parents, despite_failure = cast(list[Any], fields) if isinstance(fields, list) else (None, None)
        met_by = {b"finished", b"failed"} if despite_failure == b"1" else {b"finished"}
        return cls(_texts(parents), frozenset(met_by))


def follow_up_stranded(connection: Redis, keys: Keys) -> bool:
    """
    Have executors do what follows the end of such jobs; True if there are any. Raises RedisError.

    Also of a job that has just ended, and whose executor is about to do it: RQ's code does it once.
    """
    found = False
    for queue in cast(set[bytes], connection.smembers(rq.QUEUES)):
        name = queue.decode(errors="replace").removeprefix(rq.QUEUE_PREFIX)
        for registry in (rq.deferred(name), rq.ready(name)):
            for job_ids in _members(connection, registry):
                for parent in _ended(connection, job_ids):
                    found = follow_up(connection, keys, parent) or found
    return found


def _members(connection: Redis, registry: str) -> Iterator[list[bytes]]:
    """Some at a time."""
    members = cast(list[bytes], connection.zrange(registry, 0, -1))
    for at in range(0, len(members), CHUNK):
        yield members[at : at + CHUNK]


def _ended(connection: Redis, job_ids: list[bytes]) -> list[str]:
    """One parent of each of these jobs that waits for nothing any more."""
    with connection.pipeline(transaction=False) as pipeline:
        for job_id in job_ids:
            pipeline.hmget(rq.job(job_id.decode(errors="replace")), "dependency_ids", "allow_dependency_failures")
        dependents = [_Dependent.read(fields) for fields in pipeline.execute(raise_on_error=False)]
    parents = sorted({parent for dependent in dependents for parent in dependent.parents})
    with connection.pipeline(transaction=False) as pipeline:
        for parent in parents:
            pipeline.hget(rq.job(parent), "status")
        statuses = dict(zip(parents, pipeline.execute(raise_on_error=False), strict=True))
    return sorted(
        {
            dependent.parents[0]
            for dependent in dependents
            if dependent.parents and all(statuses[parent] in dependent.met_by for parent in dependent.parents)
        }
    )


def _texts(listed: Any) -> list[str]:
    try:
        found = json.loads(listed or b"[]")
    except (TypeError, ValueError):
        return []
    return [each for each in cast(list[Any], found) if isinstance(each, str)] if isinstance(found, list) else []
