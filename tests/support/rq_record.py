"""All that RQ's code can read back from a database, in a form in which two databases can be compared."""

from __future__ import annotations

import json
import math
import pickle
import time
import zlib
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import redis
from rq.job import Job
from rq.results import Result

TOLERANCE_SECONDS = 10.0
TIMES = {"created_at", "enqueued_at", "started_at", "ended_at", "last_heartbeat"}
TIMES |= {"execution_started_at", "execution_ended_at"}
NAMES = {"worker_name", "execution_id"}
# Of the workers themselves, which have other names and come and go.
OF_WORKERS = ("rq:worker:", "rq:workers", "rq:clean_registries:", "rq:scheduler")
OURS = "envq:"
WORKER = "rq:worker:"
JOB = "rq:job:"
READ: dict[bytes, tuple[Any, ...]] = {
    b"string": ("get",),
    b"list": ("lrange", 0, -1),
    b"set": ("smembers",),
    b"zset": ("zrange", 0, -1, False, True),
    b"hash": ("hgetall",),
    b"stream": ("xrange",),
}


class Near:
    """Seconds from now; equal to what differs by no more than both took."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Near) and (
            self.seconds == other.seconds or abs(self.seconds - other.seconds) < TOLERANCE_SECONDS
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"about {self.seconds:.0f} s" if math.isfinite(self.seconds) else "for ever"


def record_of(client: redis.Redis) -> dict[str, Any]:
    """Key to (content, time to live), but for the workers' own keys and envq's; and the workers' counters."""
    now = time.time()
    keys = sorted(key.decode() for key in client.scan_iter(count=1000))
    shown = [key for key in keys if not key.startswith((*OF_WORKERS, OURS))]
    kinds = _each(client, "type", shown)
    lives = _each(client, "ttl", shown)
    contents: list[Any] = [None] * len(shown)
    for kind, (command, *arguments) in READ.items():
        at = [number for number, each in enumerate(kinds) if each == kind]
        replies = _each(client, command, [shown[number] for number in at], *arguments)
        for number, reply in zip(at, replies, strict=True):
            contents[number] = _content(kind, shown[number], reply, now)
    record: dict[str, Any] = {
        key: (content, Near(math.inf if left < 0 else left))
        for key, content, left in zip(shown, contents, lives, strict=True)
    }
    record["workers' counters"] = _counters(client, keys)
    record["workers' executions"] = [key for key in keys if key.startswith(WORKER) and key.endswith(":executions")]
    return record


def jobs_of(client: redis.Redis) -> dict[str, Any]:
    """All jobs as RQ's own classes read them."""
    ids = [key.decode().removeprefix(JOB) for key in client.scan_iter(JOB + "*", count=1000, _type="hash")]
    return {f"job {job_id}": _as_rq_reads_it(client, job_id) for job_id in ids}


def keys_of_ours(client: redis.Redis) -> set[str]:
    """What envq keeps besides."""
    return {key.decode() for key in client.scan_iter(OURS + "*", count=1000)}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Where two records are not alike, a line each."""
    lines: list[str] = []
    for name in sorted(one.keys() | other.keys()):
        left, right = one.get(name, "absent"), other.get(name, "absent")
        if left == right:
            continue
        if isinstance(left, tuple) and isinstance(right, tuple) and isinstance(left[0], dict):
            fields = sorted(left[0].keys() | right[0].keys())
            lines += [
                f"{name} {field}: {left[0].get(field)!r} != {right[0].get(field)!r}"
                for field in fields
                if left[0].get(field) != right[0].get(field)
            ]
            left, right = left[1], right[1]
        if left != right:
            lines.append(f"{name}: {left!r} != {right!r}")
    return lines


def _each(client: redis.Redis, command: str, keys: list[str], *arguments: Any) -> list[Any]:
    """The same command for many keys, one round trip."""
    with client.pipeline(transaction=False) as pipeline:
        for key in keys:
            getattr(pipeline, command)(key, *arguments)
        return pipeline.execute()


def _content(kind: bytes, key: str, reply: Any, now: float) -> Any:
    match kind:
        case b"set":
            return sorted(reply)
        case b"zset":
            return {_stable(member, key): Near(score - now) for member, score in reply}
        case b"hash":
            return _fields(reply)
        case b"stream":
            return [_fields(fields) for _, fields in reply]
        case _:
            return reply


def _stable(member: bytes, key: str) -> str:
    """Executions have random ids."""
    text = member.decode()
    if key.startswith("rq:executions:"):
        return "<execution>"
    return text.partition(":")[0] + ":<execution>" if key.startswith("rq:wip:") else text


def _fields(reply: dict[bytes, bytes]) -> dict[str, Any]:
    return {name.decode(): _field(name.decode(), value) for name, value in reply.items()}


def _field(name: str, value: bytes) -> Any:
    if name in TIMES or name in NAMES:
        return f"<{name}>" if value else ""
    if name == "data":
        return pickle.loads(_decompressed(value))
    if name in {"meta", "result"}:
        return repr(pickle.loads(value))
    if name == "return_value":
        return repr(pickle.loads(b64decode(value)))
    if name == "exc_string":
        return zlib.decompress(b64decode(value)).decode().strip().splitlines()[-1]
    return value


def _decompressed(data: bytes) -> bytes:
    try:
        return zlib.decompress(data)
    except zlib.error:
        return data


def _counters(client: redis.Redis, keys: list[str]) -> dict[str, Any]:
    counters = {"successful_job_count": 0, "failed_job_count": 0}
    worked = False
    for key in keys:
        if key.startswith(WORKER) and not key.endswith(":executions"):
            for name in counters:
                counters[name] += int(client.hget(key, name) or 0)  # type: ignore[arg-type]
            worked = worked or float(client.hget(key, "total_working_time") or 0) > 0  # type: ignore[arg-type]
    return counters | {"worked": worked}


def _as_rq_reads_it(client: redis.Redis, job_id: str) -> Any:
    try:
        job = Job.fetch(job_id, connection=client)
    except Exception as error:  # noqa: BLE001 - what it says is compared
        return type(error).__name__
    latest = job.latest_result()
    return {
        "status": job.get_status(),
        "value": repr(job.return_value()),
        "result": latest and latest.type.name,
        "results": [result.type.name for result in Result.all(job)],
        "error": latest and (latest.exc_string or "").strip().splitlines()[-1:],
        "executions": len(job.get_executions()),
        "position": job.get_position(),
        "retries": (job.retries_left, job.number_of_retries),
        "repeats": job.repeats_left,
        "meta": json.dumps(job.meta, sort_keys=True),
        "dependencies": sorted(job.dependency_ids),
        "worker": bool(job.worker_name),
        "times": [bool(each) for each in (job.enqueued_at, job.started_at, job.ended_at)],
    }
