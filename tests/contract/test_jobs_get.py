"""`envq.get` with real workers: in order, this execution only, and an error that says why there is no result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from rq.command import send_stop_job_command
from support.waiting import eventually

import envq
from envq.driver.client import Client

WORKER = ("--kill-grace", "1")


def open_gate(client: Client, job: envq.Job[Any]) -> None:
    client.connection.rpush(f"gate:{job.id}", "open")


@pytest.fixture
def gated(driver: Client) -> Callable[..., envq.Job[Any]]:
    """Enqueue a job that waits until its gate is opened."""

    def wait_for_gate(value: object) -> object:
        from rq import get_current_job

        job: Any = get_current_job()
        job.connection.blpop(f"gate:{job.id}", timeout=30)
        return value

    def enqueue(value: object = None, **options: Any) -> envq.Job[Any]:
        return envq.task(wait_for_gate).options(**options).enqueue(value)

    return enqueue


def test_results_come_in_the_order_asked_for(driver: Client) -> None:
    def give(x: int) -> int:
        return x

    jobs = envq.task(give).map(range(50))
    assert envq.get(jobs[::-1], timeout=20) == list(range(49, -1, -1))


def test_none_is_a_result_and_a_retry_is_not(driver: Client) -> None:
    def nothing() -> None: ...

    def once_more() -> object:
        from rq import Retry, get_current_job

        job: Any = get_current_job()
        runs = job.connection.incr(f"runs:{job.id}")
        return Retry(max=3, interval=0) if runs == 1 else int(runs)

    queue = envq.Queue()
    assert envq.get([queue.enqueue(nothing), queue.enqueue(once_more)], timeout=10) == [None, 2]


def test_after_a_requeue_only_the_new_execution_counts(driver: Client) -> None:
    def fails_once() -> int:
        from rq import get_current_job

        job: Any = get_current_job()
        runs = int(job.connection.incr(f"runs:{job.id}"))
        if runs == 1:
            raise ValueError("the first time")
        job.connection.blpop(f"gate:{job.id}", timeout=30)
        return runs

    job = envq.Queue().enqueue(fails_once)
    with pytest.raises(envq.JobFailed, match="the first time"):
        envq.get(job, timeout=10)
    job.requeue()
    with pytest.raises(envq.GetTimeout):
        envq.get(job, timeout=0.3)
    open_gate(driver, job)
    assert envq.get(job, timeout=10) == 2


def test_a_failure_carries_the_remote_traceback(driver: Client) -> None:
    def outer() -> None:
        def inner() -> None:
            raise LookupError("no such key: x")

        inner()

    with pytest.raises(envq.JobFailed) as raised:
        envq.get(envq.Queue().enqueue(outer), timeout=10)
    text = str(raised.value)
    assert "LookupError: no such key: x" in text.splitlines()[0]
    assert "in inner" in text
    assert "in outer" in raised.value.remote_traceback
    assert "/workers/" not in raised.value.remote_traceback, "the queue's own frames are of no interest"


def test_cancelling_a_waiting_job_ends_the_wait(driver: Client, gated: Callable[..., envq.Job[Any]]) -> None:
    blocker, waiting = gated(), gated()
    waiting.cancel()
    with pytest.raises(envq.JobCancelled, match=waiting.id):
        envq.get(waiting, timeout=10)
    open_gate(driver, blocker)
    envq.get(blocker, timeout=10)


def test_deleting_a_waiting_job_ends_the_wait(driver: Client, gated: Callable[..., envq.Job[Any]]) -> None:
    blocker, waiting = gated(), gated()
    threading.Timer(0.3, waiting.delete).start()
    with pytest.raises(envq.JobGone, match=waiting.id):
        envq.get(waiting, timeout=10)
    open_gate(driver, blocker)
    envq.get(blocker, timeout=10)


def test_a_job_that_expires_in_the_queue_ends_the_wait_and_never_runs(
    driver: Client, gated: Callable[..., envq.Job[Any]]
) -> None:
    def mark() -> None:
        from rq import get_current_job

        job: Any = get_current_job()
        job.connection.set(f"ran:{job.id}", 1)

    blocker = gated()
    waiting = envq.task(mark).options(ttl=1).enqueue()
    with pytest.raises(envq.JobGone, match=waiting.id):
        envq.get(waiting, timeout=10)
    open_gate(driver, blocker)
    after = envq.Queue().enqueue(lambda: "next")
    assert envq.get([blocker, after], timeout=10) == [None, "next"]
    assert not driver.connection.exists(f"ran:{waiting.id}")


def test_a_job_deleted_while_it_runs_ends_the_wait_and_the_worker_goes_on(
    driver: Client, gated: Callable[..., envq.Job[Any]]
) -> None:
    running = gated("late")
    eventually(lambda: running.get_status() == "started")
    running.delete()
    with pytest.raises(envq.JobGone):
        envq.get(running, timeout=10)
    open_gate(driver, running)
    assert envq.get(envq.Queue().enqueue(lambda: "next"), timeout=10) == "next"
    assert not driver.connection.exists(running.key)


def test_a_result_that_nobody_wanted_kept_ends_the_wait(driver: Client, gated: Callable[..., envq.Job[Any]]) -> None:
    job = gated("gone", result_ttl=0)
    eventually(lambda: job.get_status() == "started")
    threading.Timer(0.3, open_gate, (driver, job)).start()
    with pytest.raises((envq.ResultNotKept, envq.JobGone), match=job.id):
        envq.get(job, timeout=10)


@pytest.mark.parametrize(("result_ttl", "kept"), [(-1, -1), (60, 60)])
def test_results_live_as_long_as_asked(driver: Client, result_ttl: int, kept: int) -> None:
    job = envq.Queue().enqueue(lambda: 1, result_ttl=result_ttl)
    assert envq.get(job, timeout=10) == 1
    for key in (job.key, f"rq:results:{job.id}"):
        left = driver.connection.ttl(key)
        assert left == kept if kept < 0 else kept - 10 < left <= kept


def test_stopping_a_running_job_ends_the_wait(driver: Client, gated: Callable[..., envq.Job[Any]]) -> None:
    job = gated()
    eventually(lambda: job.get_status() == "started")
    threading.Timer(0.2, send_stop_job_command, (driver.connection, job.id)).start()
    with pytest.raises(envq.JobStopped, match=job.id):
        envq.get(job, timeout=10)
    assert envq.get(envq.Queue().enqueue(lambda: "next"), timeout=10) == "next"


def test_the_error_of_a_job_stands_in_its_place_on_request(driver: Client) -> None:
    queue = envq.Queue()
    good, bad = queue.enqueue(lambda: 1), queue.enqueue(lambda: 1 / 0)
    values = envq.get([bad, good], timeout=10, return_exceptions=True)
    assert isinstance(values[0], envq.JobFailed)
    assert values[1] == 1
