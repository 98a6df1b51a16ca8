"""Timeouts: raised inside the job, and where that does not help, its process is killed and the next job is fine."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import rq
from rq.exceptions import TimeoutFormatError
from support.deployment import Deployment

import envq
from envq.driver.client import Client

WORKER = ("--kill-grace", "1")


def next_job_is_fine() -> int:
    """Its process, after a job of the usual kind."""
    return envq.get(envq.Queue().enqueue(lambda: __import__("os").getpid()), timeout=10)


@pytest.fixture
def wait() -> Callable[[float], str]:
    def job(seconds: float) -> str:
        import threading

        threading.Event().wait(seconds)
        return "waited"

    return job


def test_a_fraction_of_a_second_is_kept_to_and_the_process_goes_on(
    driver: Client, wait: Callable[[float], str]
) -> None:
    before = next_job_is_fine()
    job = envq.task(timeout=0.3)(wait).enqueue(30)
    with pytest.raises(envq.JobFailed, match=r"JobTimedOut: job exceeded its timeout of 0\.3 s"):
        envq.get(job, timeout=5)
    assert next_job_is_fine() == before
    execution = job.latest_result()
    assert execution is not None
    assert "in job" in str(execution.exc_string), "the traceback shows where the job was"


def test_a_job_within_its_limit_is_left_alone(driver: Client, wait: Callable[[float], str]) -> None:
    jobs = [envq.task(timeout=limit)(wait).enqueue(0.05) for limit in (2.5, None)]
    assert envq.get(jobs, timeout=10) == ["waited", "waited"]


def test_the_limit_of_one_job_never_hits_the_next(driver: Client, wait: Callable[[float], str]) -> None:
    short = [envq.task(timeout=0.2)(wait).enqueue(0.15) for _ in range(10)]
    results = envq.get(short, timeout=10, return_exceptions=True)
    assert all(result == "waited" or "0.2 s" in str(result) for result in results)
    assert envq.get(envq.task(timeout=5.0)(wait).enqueue(0.5), timeout=10) == "waited"


def test_rqs_field_holds_whole_seconds_rounded_up_and_stock_rq_reads_the_job(
    driver: Client, wait: Callable[[float], str]
) -> None:
    job = envq.task(timeout=1.2)(wait).enqueue(0)
    assert driver.connection.hget(job.key, "timeout") == b"2"
    assert rq.job.Job.fetch(job.id, driver.connection).timeout == 2
    assert envq.Job.fetch(job.id).time_limit == 1.2


def test_code_that_swallows_exceptions_is_timed_out_all_the_same(driver: Client) -> None:
    def stubborn() -> None:
        import threading

        while True:
            try:
                threading.Event().wait(30)
            except Exception:  # noqa: BLE001 - what careless code does
                continue

    before = next_job_is_fine()
    with pytest.raises(envq.JobFailed, match="JobTimedOut"):
        envq.get(envq.task(timeout=0.3)(stubborn).enqueue(), timeout=5)
    assert next_job_is_fine() == before


def swallow_everything() -> Callable[[], None]:
    def job() -> None:
        import threading

        while True:
            try:
                threading.Event().wait(0.01)
            except:  # noqa: E722 - what very careless code does
                continue

    return job


def block_signals() -> Callable[[], None]:
    def job() -> None:
        import signal
        import threading

        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        threading.Event().wait()

    return job


def stay_in_c() -> Callable[[], None]:
    def job() -> None:
        import itertools

        sum(itertools.repeat(1, 10**12))  # one instruction to the interpreter, which handles signals between two

    return job


@pytest.mark.parametrize("make", [swallow_everything, block_signals, stay_in_c], ids=lambda make: make.__name__)
def test_code_that_does_not_yield_is_killed_after_the_grace_and_fails_as_a_timeout(
    make: Callable[[], Callable[[], None]], driver: Client, deployment: Deployment
) -> None:
    before = next_job_is_fine()
    job = envq.task(timeout=0.3)(make()).enqueue()
    with pytest.raises(envq.JobFailed, match="JobTimedOut") as raised:
        envq.get(job, timeout=10)
    assert not isinstance(raised.value, envq.WorkerLost)
    assert next_job_is_fine() != before
    assert not os.path.exists(f"/proc/{before}")  # noqa: PTH110
    assert not driver.connection.hexists(job.key, "envq_crashes")


def test_a_job_killed_at_its_limit_is_retried_if_it_has_a_retry_left(driver: Client) -> None:
    def first_blocks() -> int:
        import signal
        import threading
        from typing import Any

        from rq import get_current_job

        job: Any = get_current_job()
        runs = int(job.connection.incr(f"runs:{job.id}"))
        if runs == 1:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            threading.Event().wait()
        return runs

    job = envq.task(timeout=0.3, retry=1)(first_blocks).enqueue()
    assert envq.get(job, timeout=15) == 2


def test_a_coroutine_is_timed_out_and_the_event_loop_goes_on(driver: Client) -> None:
    async def sleeper() -> None:
        import asyncio

        await asyncio.sleep(30)

    async def quick() -> str:
        import asyncio

        await asyncio.sleep(0.01)
        return "quick"

    before = next_job_is_fine()
    with pytest.raises(envq.JobFailed, match="JobTimedOut"):
        envq.get(envq.task(timeout=0.3)(sleeper).enqueue(), timeout=5)  # type: ignore[arg-type]
    assert envq.get(envq.Queue().enqueue(quick), timeout=5) == "quick"
    assert next_job_is_fine() == before


@pytest.mark.parametrize("timeout", [0, "soon"])
def test_a_timeout_that_is_none_is_refused_at_once(timeout: object, driver: Client) -> None:
    with pytest.raises((ValueError, TimeoutFormatError), match=r"(?i)timeout"):
        envq.Queue().enqueue(lambda: 1, job_timeout=timeout)


def test_a_result_that_hangs_while_it_is_pickled_is_ended_as_any_code_of_the_job(driver: Client) -> None:
    def give() -> object:
        import threading

        class Hangs:
            def __reduce__(self) -> str:
                threading.Event().wait(60)
                return "never"

        return Hangs()

    before = next_job_is_fine()
    with pytest.raises(envq.JobFailed, match=r"JobTimedOut: the result could not be pickled within 0\.3 s"):
        envq.get(envq.task(timeout=0.3)(give).enqueue(), timeout=10)
    assert next_job_is_fine() == before


def test_the_traceback_of_a_timeout_ends_in_the_code_that_was_too_slow(
    driver: Client, wait: Callable[[float], str]
) -> None:
    with pytest.raises(envq.JobFailed) as failed:
        envq.get(envq.task(timeout=0.3)(wait).enqueue(30), timeout=10)
    assert "_on_alarm" not in failed.value.remote_traceback
    assert "in wait" in failed.value.remote_traceback


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("default", [True, False])
def test_a_job_that_takes_the_alarm_away_takes_it_from_nobody_else(wait: Callable[[float], str], default: bool) -> None:
    def take() -> None:
        import signal

        signal.signal(signal.SIGALRM, signal.SIG_DFL if default else lambda *_: None)
        signal.set_wakeup_fd(-1)

    @envq.task(timeout=0.3, on_crash="fail")
    def late() -> None:
        wait(30)

    envq.get(envq.task(take).enqueue(), timeout=10)
    with pytest.raises(envq.JobFailed, match=r"JobTimedOut: job exceeded its timeout of 0\.3 s"):
        envq.get(late.enqueue(), timeout=10)
