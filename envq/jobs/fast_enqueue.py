"""New jobs of one function with the same options: made from a pattern, written by one script."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from redis import Redis
from rq.job import UNEVALUATED, JobStatus
from rq.utils import utcformat

from envq.clock import utc_now
from envq.jobs.calls import Call
from envq.jobs.job import Job
from envq.store.scripts import enqueue

COMPRESS_FROM: Final = 256  # bytes; below, compressing costs more time than it saves space
_LEVEL: Final = 1


@dataclass(frozen=True)
class Place:
    """Where jobs go: a queue, and the key of the code they need ("" for none) with the seconds it must live on."""

    queue_key: str
    at_front: bool
    code_key: str = ""
    code_ttl_s: int = 0


class Pattern:
    """A job to copy, and the fields that all copies have in Redis; empty ones are left out."""

    def __init__(self, job: Job[Any]) -> None:
        self.job = job
        fields = job.to_dict()
        for name in ("data", "created_at", "enqueued_at"):
            fields.pop(name, None)
        self._attributes = {
            name: value
            for name, value in vars(job).items()
            if name not in ("_func_name", "_instance", "_args", "_kwargs")
        }
        self._fields = [part for item in fields.items() if item[1] != "" for part in item]

    def jobs(self, calls: Iterable[Call]) -> list[Job[Any]]:
        """A new job for each call."""
        now = utc_now()
        return [self._copy(now, pickle.dumps(tuple(call), protocol=pickle.HIGHEST_PROTOCOL)) for call in calls]

    def push(self, connection: Redis, place: Place, jobs: Sequence[Job[Any]]) -> bool:
        """
        Write them and put them on their queue; one round trip, atomic.

        False where the code they need is not in Redis, and nothing was written.
        """
        moment = utcformat(jobs[0].created_at)
        common = [*self._fields, "created_at", moment, "enqueued_at", moment]
        side = "L" if place.at_front else "R"
        arguments: list[Any] = [side, self.job.ttl or 0, place.code_ttl_s, len(common), *common]
        for job in jobs:
            data = job.data
            arguments += (job.id, zlib.compress(data, _LEVEL) if len(data) >= COMPRESS_FROM else data)
        return enqueue(connection, place.queue_key, place.code_key, arguments)

    def _copy(self, now: Any, data: bytes) -> Job[Any]:
        job = object.__new__(type(self.job))
        attributes = vars(job)
        attributes.update(self._attributes)
        attributes.update(
            _id=str(uuid4()), created_at=now, enqueued_at=now, meta=self.job.meta.copy(), webhooks=[],
            _dependency_ids=[], _data=data, _func_name=UNEVALUATED, _instance=UNEVALUATED, _args=UNEVALUATED,
            _kwargs=UNEVALUATED, _status=JobStatus.QUEUED,
        )  # fmt: skip
        return job
