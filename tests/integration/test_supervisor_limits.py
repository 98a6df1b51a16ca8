"""How many executors and jobs a worker has, and for how long something may run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
import rq
from support import supervised
from support.processes import Process
from support.waiting import eventually

from envq.store.keys import Keys, job

Start = Callable[..., Process]


@pytest.fixture
def jobs(redis_client: redis.Redis, namespace: str) -> rq.Queue:
    """The queue "default" of the test's namespace, as a stock client sees it."""
    return rq.Queue(f"{namespace}:default", connection=redis_client)


def test_job_that_does_not_yield_to_its_timeout_is_killed_and_settled(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis, jobs: rq.Queue
) -> None:
    endless, waiting = jobs.enqueue("time.sleep", 1000), jobs.enqueue("time.sleep", 0)
    redis_client.rpush(supervised.acts(namespace), "run 0.2")
    start_process(supervised.command(redis_url, namespace, stand_in=True, kill_grace_s=0.3, scheduler=False))
    eventually(lambda: redis_client.lrange(Keys(namespace).settle, 0, -1) == [endless.id.encode()])
    settle = redis_client.hget(job(endless.id), "envq_settle")
    assert b'"timeout"' in settle
    assert b"0.3 s" in settle
    assert waiting.get_status() == "queued"


def test_hung_build_is_killed_at_its_limit_and_the_executor_replaced(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis
) -> None:
    redis_client.hset(Keys(namespace).declarations, "cartpole", "{}")
    redis_client.rpush(supervised.acts(namespace), "build cartpole 0.2")
    worker = start_process(supervised.command(redis_url, namespace, stand_in=True, kill_grace_s=0.3, scheduler=False))
    eventually(lambda: "the build of cartpole did not end" in worker.output)
    eventually(lambda: worker.output.count(") started") == 2)


def test_executor_that_wants_to_be_recycled_is_replaced_at_once(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis
) -> None:
    redis_client.rpush(supervised.acts(namespace), *["exit 75"] * 20)
    worker = start_process(supervised.command(redis_url, namespace, stand_in=True, scheduler=False))
    eventually(lambda: worker.output.count(") started") == 21, timeout=5.0)


def test_executors_that_die_at_once_are_replaced_ever_more_slowly(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis
) -> None:
    redis_client.rpush(supervised.acts(namespace), *["exit 9"] * 50)
    worker = start_process(supervised.command(redis_url, namespace, stand_in=True, scheduler=False))
    eventually(lambda: worker.output.count("exited with code 9") == 4)
    assert redis_client.llen(supervised.acts(namespace)) >= 44
    assert worker.stop() == 0


def test_build_failure_of_an_executor_ends_the_worker_with_its_code(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis
) -> None:
    redis_client.rpush(supervised.acts(namespace), "exit 5")
    worker = start_process(supervised.command(redis_url, namespace, stand_in=True, executors=2))
    assert worker.wait() == 5


def test_burst_ends_when_the_queue_is_empty(
    start_process: Start, redis_url: str, namespace: str, jobs: rq.Queue
) -> None:
    all_jobs = [jobs.enqueue("time.sleep", 0) for _ in range(5)]
    worker = start_process(supervised.command(redis_url, namespace, burst=True, executors=2))
    assert worker.wait() == 0
    assert [each.get_status() for each in all_jobs] == ["finished"] * 5


def test_burst_ends_when_all_is_done_also_while_executors_are_replaced(
    start_process: Start, redis_url: str, namespace: str, jobs: rq.Queue
) -> None:
    all_jobs = [jobs.enqueue("time.sleep", 0.02) for _ in range(40)]
    worker = start_process(supervised.command(redis_url, namespace, burst=True, executors=2, max_jobs_per_child=3))
    assert worker.wait(30.0) == 0
    assert [each.get_status() for each in all_jobs] == ["finished"] * 40
    assert worker.output.count(") started") > 4


def test_burst_goes_on_after_a_crash(start_process: Start, redis_url: str, namespace: str, jobs: rq.Queue) -> None:
    poison, good = jobs.enqueue("os._exit", 0), jobs.enqueue("time.sleep", 0)
    worker = start_process(supervised.command(redis_url, namespace, burst=True))
    assert worker.wait(20.0) == 0
    assert (poison.get_status(), good.get_status()) == ("failed", "finished")


def test_no_more_jobs_than_allowed_are_run(
    start_process: Start, redis_url: str, namespace: str, jobs: rq.Queue
) -> None:
    all_jobs = [jobs.enqueue("time.sleep", 0) for _ in range(8)]
    worker = start_process(supervised.command(redis_url, namespace, max_jobs=5, executors=3))
    assert worker.wait() == 0
    assert sorted(each.get_status() for each in all_jobs) == ["finished"] * 5 + ["queued"] * 3


def test_limits_of_jobs_per_worker_and_per_child_work_together(
    start_process: Start, redis_url: str, namespace: str, jobs: rq.Queue
) -> None:
    all_jobs = [jobs.enqueue("time.sleep", 0) for _ in range(7)]
    worker = start_process(supervised.command(redis_url, namespace, max_jobs=5, max_jobs_per_child=2))
    assert worker.wait() == 0
    assert [each.get_status() for each in all_jobs] == ["finished"] * 5 + ["queued"] * 2
    assert worker.output.count(") started") == 3


def test_idle_worker_exits_after_its_idle_time(start_process: Start, redis_url: str, namespace: str) -> None:
    worker = start_process(supervised.command(redis_url, namespace, max_idle_s=0.3))
    assert worker.wait() == 0


def test_worker_runs_jobs_with_spawned_processes(
    start_process: Start, redis_url: str, namespace: str, jobs: rq.Queue
) -> None:
    job_in_spawned = jobs.enqueue("time.sleep", 0)
    worker = start_process(supervised.command(redis_url, namespace, start_method="spawn", executors=2))
    eventually(lambda: job_in_spawned.get_status() == "finished", timeout=15.0)
    assert worker.stop() == 0
