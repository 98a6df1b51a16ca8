"""The scheduler of a worker: there by default, and back when it dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import redis
import rq
from support import supervised
from support.processes import Process
from support.servers import Server
from support.waiting import eventually

Start = Callable[..., Process]


@pytest.fixture
def jobs(redis_client: redis.Redis, namespace: str) -> rq.Queue:
    """The queue "default" of the test's namespace, as a stock client sees it."""
    return rq.Queue(f"{namespace}:default", connection=redis_client)


def scheduler_pid(client: redis.Redis) -> int:
    [key] = eventually(lambda: list(client.scan_iter("rq:scheduler:*", count=1000)) or False)
    return int(client.hget(key, "pid") or 0)


def test_scheduled_job_runs_without_any_option(
    start_process: Start, redis_url: str, namespace: str, jobs: rq.Queue
) -> None:
    later = jobs.enqueue_in(timedelta(seconds=1), "time.sleep", 0)
    start_process(supervised.command(redis_url, namespace))
    eventually(lambda: later.get_status() == "finished")


def test_killed_scheduler_comes_back_and_schedules(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis, jobs: rq.Queue
) -> None:
    start_process(supervised.command(redis_url, namespace))
    killed = scheduler_pid(redis_client)
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: scheduler_pid(redis_client) != killed)
    later = jobs.enqueue_in(timedelta(seconds=1), "time.sleep", 0)
    eventually(lambda: later.get_status() == "finished")


def test_what_was_scheduled_runs_soon_although_the_worker_that_scheduled_is_gone(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis, jobs: rq.Queue
) -> None:
    first = start_process(supervised.command(redis_url, namespace, lease=2.0))
    eventually(lambda: redis_client.exists(f"rq:scheduler-lock:{namespace}:default") == 1)
    start_process(supervised.command(redis_url, namespace, lease=2.0))
    first.kill()
    later = jobs.enqueue_in(timedelta(0), "time.sleep", 0)
    eventually(lambda: later.get_status() == "finished", timeout=30.0)  # RQ alone would wait for a minute


def test_scheduler_survives_a_restart_of_the_server(
    start_process: Start, own_server: Callable[..., Server], namespace: str
) -> None:
    server = own_server()
    start_process(supervised.command(server.url(), namespace))
    with server.client() as client:
        scheduler_pid(client)
        server.kill()
        server.start()
        later = rq.Queue(f"{namespace}:default", connection=client).enqueue_in(timedelta(seconds=1), "time.sleep", 0)
        eventually(lambda: later.get_status() == "finished", timeout=20.0)


def test_idle_worker_with_a_scheduler_stops_at_once(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis
) -> None:
    worker = start_process(supervised.command(redis_url, namespace))
    scheduler_pid(redis_client)
    assert worker.stop(timeout=0.8) == 0
    assert list(redis_client.scan_iter("rq:scheduler*")) == [], "its locks are given back"


def test_burst_runs_what_is_due(start_process: Start, redis_url: str, namespace: str, jobs: rq.Queue) -> None:
    due = jobs.enqueue_at(datetime.now(UTC) - timedelta(seconds=5), "time.sleep", 0)
    worker = start_process(supervised.command(redis_url, namespace, burst=True))
    assert worker.wait() == 0
    assert due.get_status() == "finished"
