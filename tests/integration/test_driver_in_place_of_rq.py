"""envq's queue and job where code was written for RQ's."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator

import pytest
import redis
import rq
import rq.job
from rq.registry import FailedJobRegistry
from rq.serializers import JSONSerializer
from rq.webhook import Webhook

import envq
from envq.driver.client import swap_default


@pytest.fixture(autouse=True)
def no_default_client() -> Iterator[None]:
    before = swap_default(None)
    yield
    swap_default(before)


def test_a_worker_of_rqs_takes_the_queue_class_of_envq(redis_client: redis.Redis) -> None:
    job = envq.Queue(connection=redis_client).enqueue(abs, -1)
    worker = rq.SimpleWorker(["default"], connection=redis_client, queue_class=envq.Queue, job_class=envq.Job)
    taken = worker.dequeue_job_and_maintain_ttl(None)
    assert taken is not None
    assert taken[0] == job
    assert isinstance(taken[0], envq.Job)


def test_a_job_equals_the_one_that_rqs_registries_give(redis_client: redis.Redis) -> None:
    job = envq.Queue(connection=redis_client).enqueue(abs, -1)
    same = rq.job.Job.fetch(job.id, connection=redis_client)
    assert job == same
    assert same == job
    assert {job, same} == {job}
    assert job != envq.Queue(connection=redis_client).enqueue(abs, -1)
    assert job not in FailedJobRegistry(connection=redis_client)


def test_the_job_that_enqueue_returns_knows_its_webhooks(redis_client: redis.Redis) -> None:
    hooks = [Webhook("http://127.0.0.1:9/done", "finished")]
    queue = envq.Queue(connection=redis_client)
    jobs = [queue.enqueue(abs, -1, webhooks=hooks) for _ in range(2)]
    jobs[0].webhooks.clear()
    assert jobs[1].webhooks == hooks
    assert rq.job.Job.fetch(jobs[0].id, connection=redis_client).webhooks == hooks


def test_a_queue_writes_with_the_serializer_it_was_given(redis_client: redis.Redis) -> None:
    job = envq.Queue(connection=redis_client, serializer=JSONSerializer).enqueue(divmod, 7, 2)
    stored = zlib.decompress(redis_client.hget(job.key, "data"))
    assert json.loads(stored) == ["builtins.divmod", None, [7, 2], {}]
