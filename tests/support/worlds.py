"""The same deployment three times: run by RQ's own worker, by our batches, and by ours with ``--through-rq``."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
import rq
from rq.scheduler import RQScheduler

from support.bursts import Bursts
from support.rq_record import differences, jobs_of, keys_of_ours, record_of
from support.same_jobs import PLAY
from support.servers import Server

KINDS = ("stock", "batches", "through-rq")
QUEUES = ("high", "default", "low")

# A job that comes to the front of its queue, or into a more urgent one, runs after those that were claimed already.
# Where another waits for several, the last of them to end forgets it, and the others keep its id until they expire.
WHO_ENDED_LAST = re.compile(r"rq:job:[\w-]+:dependents").match


class World:
    """The same deployment three times."""

    def __init__(self, server: Server, directory: Path) -> None:
        self._bursts = Bursts(server.url(len(KINDS)), directory)
        self.urls = {kind: server.url(number) for number, kind in enumerate(KINDS)}
        self.clients = {kind: redis.Redis.from_url(url) for kind, url in self.urls.items()}

    def clear(self) -> None:
        self.one_by_one = True
        for client in self.clients.values():
            client.flushdb()

    def end(self) -> None:
        self._bursts.end()
        for client in self.clients.values():
            client.close()

    def each(self, act: Callable[[redis.Redis], Any]) -> None:
        """Do it to each; it has to give the same, be it an error."""
        outcomes = {kind: _outcome(act, client) for kind, client in self.clients.items()}
        assert len(set(outcomes.values())) == 1, outcomes

    def enqueue(self, job_id: str, script: list[str], queue: str = "default", **options: Any) -> None:
        self.each(lambda client: _enqueue(client, job_id, script, queue, options))

    def work(self, wanted: int = 64) -> None:
        """Let workers run until nothing waits; all records are alike then."""
        self.burst(wanted)
        self.one_by_one = self.one_by_one and wanted == 1
        self.compare()

    def burst(self, wanted: int = 64) -> None:
        """Let workers run, ours claiming so many jobs together."""
        self._bursts.run(self.urls, QUEUES, wanted)

    def come_due(self) -> None:
        """Whatever is scheduled is due, and RQ's scheduler enqueues it."""
        self.each(_come_due)

    def compare_as_read(self) -> None:
        """The same through RQ's own classes."""
        stock = jobs_of(self.clients["stock"])
        for kind in KINDS[1:]:
            different = differences(stock, jobs_of(self.clients[kind]))
            assert not different, "\n".join([f"RQ's own worker != {kind}", *different])

    def keys(self, job_id: str, kind: str = "batches") -> list[bytes]:
        """What RQ keeps of a job in one of them."""
        return sorted(self.clients[kind].scan_iter(f"rq:*{job_id}*", count=1000))

    def is_queued_twice(self, job_id: str) -> bool:
        stock = self.clients["stock"]
        return sum(rq.Queue(name, connection=stock).job_ids.count(job_id) for name in QUEUES) > 1

    def compare(self) -> None:
        """Records are alike, and nothing of ours is left that should not be."""
        stock = record_of(self.clients["stock"])
        for kind in KINDS[1:]:
            different = differences(stock, record_of(self.clients[kind]))
            if kind == "batches" and not self.one_by_one:
                different = [line for line in different if not WHO_ENDED_LAST(line)]
            assert not different, "\n".join([f"RQ's own worker != {kind}", *different])
            left = {key.split(":")[2] for key in keys_of_ours(self.clients[kind])}
            assert left <= {"events", "executors", "generation"}, left


def _outcome(act: Callable[[redis.Redis], Any], client: redis.Redis) -> str:
    try:
        return repr(act(client))
    except Exception as error:  # noqa: BLE001 - compared
        return type(error).__name__


def _enqueue(client: redis.Redis, job_id: str, script: list[str], queue: str, options: dict[str, Any]) -> str:
    made = {name: make() if callable(make) else make for name, make in options.items()}
    return rq.Queue(queue, connection=client).enqueue(PLAY, script, job_id=job_id, **made).get_status(refresh=False)


def _come_due(client: redis.Redis) -> None:
    for name in QUEUES:
        registry = rq.Queue(name, connection=client).scheduled_job_registry
        for job_id in registry.get_job_ids():
            client.zadd(registry.key, {job_id: 1})
    scheduler = RQScheduler(QUEUES, client, logging_level=logging.WARNING)
    scheduler.acquire_locks()
    scheduler.enqueue_scheduled_jobs()
    scheduler.release_locks()
    scheduler.connection.connection_pool.disconnect()
