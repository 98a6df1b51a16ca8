"""Maintenance enqueues the dependents of a job whose failure was stored by somebody who vanished before that."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
from rq import Queue
from rq.job import Dependency, Job
from support import supervised
from support.processes import Process
from support.waiting import eventually

from envq.workers.execution.left_behind import enqueue_left_behind


@pytest.fixture
def queue(redis_client: redis.Redis) -> Queue:
    return Queue("q", connection=redis_client)


def end(job: Job, status: str) -> None:
    """Its record says so, and whoever wrote that did no more."""
    job.connection.hset(job.key, "status", status)
    job.connection.lrem(f"rq:queue:{job.origin}", 0, job.id)


def depend(queue: Queue, *parents: Job, allow_failure: bool = True) -> Job:
    return queue.enqueue("time.time", depends_on=Dependency(list(parents), allow_failure=allow_failure))


def test_what_waits_for_failed_jobs_in_vain_is_enqueued_once(queue: Queue, redis_client: redis.Redis) -> None:
    first, second = queue.enqueue("time.time"), queue.enqueue("time.time")
    waiting = depend(queue, first, second)
    end(first, "failed")
    end(second, "finished")
    assert enqueue_left_behind(redis_client, queue) == [waiting.id]
    assert queue.job_ids == [waiting.id]
    assert waiting.get_status() == "queued"
    assert queue.deferred_job_registry.get_job_ids() == queue.ready_job_registry.get_job_ids() == []
    assert enqueue_left_behind(redis_client, queue) == []
    queue.enqueue_dependents(first)
    queue.enqueue_dependents(second)
    assert queue.job_ids == [waiting.id], "nor once more by somebody who was only late"


def test_what_has_a_reason_to_wait_goes_on_waiting(queue: Queue, redis_client: redis.Redis) -> None:
    failed, waits, stopped = (queue.enqueue("time.time") for _ in range(3))
    deferred = [
        depend(queue, failed, allow_failure=False),
        depend(queue, failed, waits),
        depend(queue, failed, stopped),
    ]
    end(failed, "failed")
    end(stopped, "stopped")
    assert enqueue_left_behind(redis_client, queue) == []
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
