"""Dependents of a job whose end was stored by somebody who vanished before he could enqueue them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
from rq import Queue
from rq.job import Dependency, Job
from support import supervised
from support.processes import Process
from support.waiting import eventually

from envq.store.keys import Keys
from envq.workers.stranded import follow_up_stranded


@pytest.fixture
def queue(redis_client: redis.Redis) -> Queue:
    return Queue("q", connection=redis_client)


@pytest.fixture
def keys(namespace: str) -> Keys:
    return Keys(namespace)


def end(job: Job, status: str) -> None:
    """Its record says so, and whoever wrote that did no more."""
    job.connection.hset(job.key, "status", status)
    job.connection.lrem(f"rq:queue:{job.origin}", 0, job.id)


def depend(queue: Queue, *parents: Job, allow_failure: bool = True) -> Job:
    return queue.enqueue("time.time", depends_on=Dependency(list(parents), allow_failure=allow_failure))


def test_what_waits_for_ended_jobs_in_vain_is_found_once(queue: Queue, redis_client: redis.Redis, keys: Keys) -> None:
    first, second, alone = (queue.enqueue("time.time") for _ in range(3))
    depend(queue, first, second)
    depend(queue, alone, allow_failure=False)
    end(first, "failed")
    end(second, "finished")
    end(alone, "finished")
    assert follow_up_stranded(redis_client, keys)
    left = {job_id.decode() for job_id in redis_client.lrange(keys.settle, 0, -1)}
    assert alone.id in left and left & {first.id, second.id}
    assert not follow_up_stranded(redis_client, keys), "somebody is about to see to them"


def test_what_has_a_reason_to_wait_goes_on_waiting(queue: Queue, redis_client: redis.Redis, keys: Keys) -> None:
    failed, waits, stopped = (queue.enqueue("time.time") for _ in range(3))
    deferred = [
        depend(queue, failed, allow_failure=False),
        depend(queue, failed, waits),
        depend(queue, failed, stopped),
    ]
    end(failed, "failed")
    end(stopped, "stopped")
    assert not follow_up_stranded(redis_client, keys)
    assert [job.get_status() for job in deferred] == ["deferred"] * 3


def test_a_worker_does_it_at_its_start(
    start_process: Callable[..., Process], redis_url: str, namespace: str, redis_client: redis.Redis
) -> None:
    queue = Queue(f"{namespace}:default", connection=redis_client)
    parent = queue.enqueue("time.time")
    waiting = depend(queue, parent)
    end(parent, "failed")
    start_process(supervised.command(redis_url, namespace, scheduler=False))
    eventually(lambda: waiting.get_status() == "finished")
