"""New jobs of one function with the same options: made from a pattern, written by one script."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis import Redis
from rq.job import UNEVALUATED, JobStatus

from envq.clock import iso, utc_now
from envq.code.signing import job_keys
from envq.jobs.job import Job, own_attributes
from envq.jobs.signed import META_SIGNATURE, SIGNATURE, job_prefix, job_signature, meta_signature
from envq.store.scripts import enqueue, enqueue_command

COMPRESS_FROM: Final = 256  # bytes; below, compressing costs more time than it saves space
_LEVEL: Final = 1
_OF_EACH_JOB: Final = ("data", "created_at", "enqueued_at", SIGNATURE, META_SIGNATURE)
_VARIANTS: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


@dataclass(frozen=True)
class Place:
    """Where jobs go: keys of queue, queues, generation, and of the code they need if any, which lives that long."""

    keys: tuple[str, ...]
    at_front: bool
    code_ttl_s: int = 0


class Pattern:
    """A job to copy, where copies go, and the fields that all of them have in Redis; empty ones are left out."""

    def __init__(self, job: Job[Any], place: Place) -> None:
        self._class = type(job)
        self._connection: Redis = job.connection
        self._attributes = own_attributes(vars(job)) | {  # options are the user's, and may change before a job is read
            "_func_name": UNEVALUATED, "_instance": UNEVALUATED, "_args": UNEVALUATED, "_kwargs": UNEVALUATED,
            "_status": JobStatus.QUEUED,
        }  # fmt: skip
        fields = {name: value for name, value in job.to_dict().items() if value != "" and name not in _OF_EACH_JOB}
        side = "L" if place.at_front else "R"
        self._prefix = job_prefix(fields) if job_keys() else None
        self._meta = fields.get("meta", b"")
        self._own = ("data",) if self._prefix is None else (SIGNATURE, "data")
        if self._prefix is not None and self._meta:
            self._own = (META_SIGNATURE, *self._own)
        # Two times and what is each job's own follow, with their names.
        size = 2 * (len(fields) + 2 + len(self._own))
        parts = (part for item in fields.items() for part in item)
        head = [side, job.ttl or 0, place.code_ttl_s, size, len(self._own), *parts]
        self._command = enqueue_command(place.keys, head)

    def push(self, calls: Sequence[bytes], generation: str) -> list[Job[Any]] | None:
        """
        Write a job for each pickled call and put them on their queue; one round trip, atomic.

        None where the code they need is not in Redis, and nothing was written. Raises DeclarationsForgotten for a store
        that has turned back behind the generation, unless that is "".
        """
        now = utc_now()
        moment = iso(now)
        command: list[Any] = [*self._command, "created_at", moment, "enqueued_at", moment, *self._own]
        ids = new_ids(len(calls))
        for job_id, data in zip(ids, calls, strict=True):
            if self._prefix is not None:
                command += self._signatures(self._prefix, job_id, data)
            command += (data if len(data) < COMPRESS_FROM else _compressed(data), job_id)
        command.append(generation)
        if not enqueue(self._connection, command):
            return None
        make = Job.from_pattern if self._class is Job else self._copy
        return [make(self._attributes, job_id, data, now) for job_id, data in zip(ids, calls, strict=True)]

    def _signatures(self, beginning: bytes, job_id: str, data: bytes) -> list[str]:
        of_job = job_signature(beginning, job_id, data)
        return [meta_signature(job_id, self._meta), of_job] if self._meta else [of_job]

    def _copy(self, attributes: dict[str, Any], job_id: str, data: bytes, created_at: Any) -> Job[Any]:
        """For a class of somebody else, that knows nothing of filling itself."""
        job = object.__new__(self._class)
        vars(job).update(own_attributes(attributes))
        vars(job).update(_id=job_id, _data=data, created_at=created_at, enqueued_at=created_at)
        return job


def new_ids(number: int) -> list[str]:
    """Random ids as uuid4 makes them, at a fraction of its cost; forks share no state that would repeat them."""
    digits = os.urandom(16 * number).hex()
    ids: list[str] = []
    for at in range(0, 32 * number, 32):
        each = digits[at : at + 32]
        ids.append(f"{each[:8]}-{each[8:12]}-4{each[13:16]}-{_VARIANTS[each[16]]}{each[17:20]}-{each[20:]}")
    return ids


def _compressed(data: bytes) -> bytes:
    smaller = zlib.compress(data, _LEVEL)
    return smaller if len(smaller) < len(data) else data
