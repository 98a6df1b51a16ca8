"""When the dust has settled: what still waits, runs or is held in Redis."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, Final

import redis
from chaos.storm.fleet import Fleet
from chaos.storm.patience import AWAY
from chaos.storm.plan import QUEUES

from envq.driver.client import Client
from envq.workers.supervision.settlement import LOOK_AGAIN_S

ENDED: Final = {b"finished", b"failed", b"stopped"}
LEFT: Final = (
    "envq:*:claims:*",
    "envq:*:settle",
    "rq:wip:*",
    "rq:execution*",
    "rq:deferred:*",
    "rq:ready:*",
    "rq:scheduled:*",
)
LOOK_S: Final = 0.5
CALM_S: Final = LOOK_AGAIN_S + 1.0  # a worker that leaves sooner after a death asks others to look at it once more
_TELLING: Final = {
    b"origin", b"status", b"enqueued_at", b"started_at", b"ended_at", b"worker_name", b"retries_left",
    b"number_of_retries", b"envq_crashes", b"envq_settle", b"envq_alone", b"envq_on_crash",
}  # fmt: skip


def waiting(client: redis.Redis) -> int:
    """Jobs in the queues."""
    with client.pipeline(transaction=False) as pipeline:
        for queue in QUEUES:
            pipeline.llen(f"rq:queue:{queue}")
        return sum(pipeline.execute())


def statuses(client: redis.Redis, job_ids: Sequence[str]) -> list[bytes | None]:
    with client.pipeline(transaction=False) as pipeline:
        for job_id in job_ids:
            pipeline.hget(f"rq:job:{job_id}", "status")
        return pipeline.execute()


def left(client: redis.Redis) -> list[str]:
    """Keys that only work in progress needs, with what they hold."""
    keys = sorted(key.decode() for pattern in LEFT for key in client.scan_iter(pattern, count=5000))
    return [f"{key}: {_content(client, key)}" for key in keys]


def _content(client: redis.Redis, key: str) -> Any:
    match client.type(key):
        case b"list":
            return client.lrange(key, 0, 9)
        case b"zset":
            return client.zrange(key, 0, 9, withscores=True)
        case b"hash":
            return client.hgetall(key)
        case b"set":
            return client.smembers(key)
        case _:
            return client.get(key)


def settled(client: Client, job_ids: Sequence[str], fleet: Fleet, within_s: float) -> list[str]:
    """Wait until nothing is in progress or left of workers that were killed; what still is when the time is over."""
    began = time.monotonic()
    while True:
        fleet.tend()
        try:
            still_open = _open(client, job_ids, fleet)
        except AWAY as error:
            still_open = [str(error)]
        passed = time.monotonic() - began
        if passed > within_s or (not still_open and passed > CALM_S):
            return still_open
        threading.Event().wait(LOOK_S)


def _open(client: Client, job_ids: Sequence[str], fleet: Fleet) -> list[str]:
    connection = client.connection
    if count := waiting(connection):
        return [f"{count} jobs wait in the queues"]
    if found := left(connection):
        return found
    found = zip(job_ids, statuses(connection, job_ids), strict=True)
    unended = [f"{job_id} is {status!r}" for job_id, status in found if status not in ENDED]
    return unended or [f"{name} is not struck off" for name in fleet.strangers(_executors(client))]


def _executors(client: Client) -> list[str]:
    return [name.decode() for name in client.connection.zrange(client.keys.executors, 0, -1)]


def of_executors(client: Client) -> list[str]:
    """What is left of executors when all workers have stopped."""
    connection, keys = client.connection, client.keys
    registered = [f"rq:workers holds {key.decode()}" for key in connection.smembers("rq:workers")]
    records = [key.decode() for key in connection.scan_iter(keys.executor("*"), count=5000)]
    return [*(f"{keys.executors} holds {name}" for name in _executors(client)), *registered, *records]


def story(client: redis.Redis, job_id: str) -> str:
    """All that Redis knows of a job."""
    fields = client.hgetall(f"rq:job:{job_id}")
    record = {name.decode(): value[:100].decode(errors="replace") for name, value in fields.items() if name in _TELLING}
    results = [(entry[b"type"], entry.get(b"worker_name")) for _, entry in client.xrange(f"rq:results:{job_id}")]
    return f"record {record}, results {results}"
