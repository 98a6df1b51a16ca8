"""RQ's sharp edges around a worker: commands, garbage, suspension, schedules, stock tools beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import rq
from rq.command import send_kill_horse_command, send_stop_job_command
from support.deployment import Deployment
from support.processes import clean_environment
from support.waiting import eventually

import envq
from envq.driver.client import Client
from envq.store.keys import worker_commands

WORKER = ("high", "default", "--kill-grace", "1")


def stock_rq(deployment: Deployment, *arguments: str, cwd: Path) -> str:
    """Run RQ's own command line; its output."""
    program = "import sys; from rq.cli import main; sys.argv[0] = 'rq'; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, *arguments],
        cwd=cwd,
        env=clean_environment({"RQ_REDIS_URL": deployment.url}),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def executor_of(deployment: Deployment) -> str:
    return deployment.worker.executors()[0]


@pytest.fixture
def wait_at_gate() -> Callable[[], str]:
    def job() -> str:
        from rq import get_current_job

        job: Any = get_current_job()
        job.connection.blpop(f"gate:{job.id}", timeout=30)
        return "passed"

    return job


def open_gate(client: Client, job: envq.Job[Any]) -> None:
    client.connection.rpush(f"gate:{job.id}", "open")


@pytest.mark.parametrize("garbage", [b"\xff\x00{", b"[]", b'{"command": 1}', b'{"command": "stop-job"}'])
def test_garbage_on_the_command_channel_leaves_commands_working(
    garbage: bytes, deployment: Deployment, driver: Client, wait_at_gate: Callable[[], str]
) -> None:
    channel = worker_commands(executor_of(deployment))
    assert deployment.redis.publish(channel, garbage) == 1
    job = envq.Queue().enqueue(wait_at_gate)
    eventually(lambda: job.get_status() == "started")
    send_stop_job_command(deployment.redis, job.id)
    with pytest.raises(envq.JobStopped):
        envq.get(job, timeout=5)


def test_a_stopped_job_is_not_retried_and_runs_again_when_requeued(
    driver: Client, wait_at_gate: Callable[[], str]
) -> None:
    job = envq.task(retry=3)(wait_at_gate).enqueue()
    eventually(lambda: job.get_status() == "started")
    send_stop_job_command(driver.connection, job.id)
    with pytest.raises(envq.JobStopped):
        envq.get(job, timeout=5)
    assert job.get_status() == "stopped"
    again = envq.Job.fetch(job.id).requeue()
    open_gate(driver, job)
    assert envq.get(again, timeout=5) == "passed"


def test_a_stop_does_not_mark_a_later_failure_as_stopped(driver: Client, wait_at_gate: Callable[[], str]) -> None:
    first = envq.Queue().enqueue(wait_at_gate)
    eventually(lambda: first.get_status() == "started")
    send_stop_job_command(driver.connection, first.id)
    with pytest.raises(envq.JobStopped):
        envq.get(first, timeout=5)
    with pytest.raises(envq.JobFailed):
        envq.get(envq.Queue().enqueue(lambda: 1 / 0), timeout=5)
    envq.Job.fetch(first.id).requeue()
    open_gate(driver, first)
    eventually(lambda: first.get_status() == "finished")


def test_the_kill_command_ends_the_process_and_the_job_runs_again(deployment: Deployment, driver: Client) -> None:
    def first_waits() -> int:
        import threading

        from rq import get_current_job

        job: Any = get_current_job()
        runs = int(job.connection.incr(f"runs:{job.id}"))
        if runs == 1:
            threading.Event().wait(60)
        return runs

    job = envq.Queue().enqueue(first_waits)
    eventually(lambda: deployment.redis.get(f"runs:{job.id}") == b"1")
    send_kill_horse_command(deployment.redis, executor_of(deployment))
    assert envq.get(job, timeout=5) == 2


def test_rq_suspend_and_resume_are_obeyed(deployment: Deployment, driver: Client, tmp_path: Path) -> None:
    stock_rq(deployment, "suspend", cwd=tmp_path)
    job = envq.Queue().enqueue(lambda: "ran")
    with pytest.raises(envq.GetTimeout, match="queued"):
        envq.get(job, timeout=1.5)
    stock_rq(deployment, "resume", cwd=tmp_path)
    assert envq.get(job, timeout=3) == "ran"


def test_a_suspension_with_a_duration_ends_by_itself(deployment: Deployment, driver: Client, tmp_path: Path) -> None:
    stock_rq(deployment, "suspend", "--duration", "1", cwd=tmp_path)
    assert envq.get(envq.Queue().enqueue(lambda: "ran"), timeout=4) == "ran"


def test_what_is_enqueued_for_later_runs_without_any_option(driver: Client) -> None:
    job = envq.Queue().enqueue_in(timedelta(seconds=1), lambda: "later")
    assert envq.get(job, timeout=10) == "later"
    assert envq.get(envq.task(lambda_of("scheduled")).enqueue_in(0.5), timeout=10) == "scheduled"


def lambda_of(value: str) -> Callable[[], str]:
    def give() -> str:
        return value

    return give


def test_the_scheduler_is_a_process_of_its_own_beside_the_executors(deployment: Deployment) -> None:
    def schedulers() -> list[bytes]:
        return list(deployment.redis.scan_iter("rq:scheduler:*", count=1000))

    [key] = eventually(lambda: schedulers() or False)
    pid = int(deployment.redis.hget(key, "pid") or 0)
    executors = [int(deployment.redis.hget(f"rq:worker:{name}", "pid") or 0) for name in deployment.worker.executors()]
    assert pid in deployment.worker.descendants()
    assert pid not in [deployment.worker.pid, *executors]


def test_a_retry_with_intervals_waits_as_long_as_each_says(driver: Client) -> None:
    def note_time() -> None:
        import time

        from rq import get_current_job

        job: Any = get_current_job()
        job.connection.rpush(f"times:{job.id}", time.time())
        raise ValueError("again")

    job = envq.task(note_time).options(retry=envq.Retry(max=3, interval=[0, 2])).enqueue()
    with pytest.raises(envq.JobFailed):
        envq.get(job, timeout=20)
    times = [float(each) for each in driver.connection.lrange(f"times:{job.id}", 0, -1)]
    gaps = [after - before for before, after in pairwise(times)]
    assert len(gaps) == 3
    assert gaps[0] < 1
    assert all(1 <= gap <= 5 for gap in gaps[1:]), gaps


def test_a_retry_stores_one_result_and_runs_the_failure_path_once(driver: Client) -> None:
    job = envq.task(lambda_that_fails()).options(retry=2).enqueue()
    with pytest.raises(envq.JobFailed):
        envq.get(job, timeout=10)
    assert len(job.results()) == 1
    assert job.id in envq.Queue().failed_job_registry.get_job_ids()


def lambda_that_fails() -> Callable[[], None]:
    def fail() -> None:
        raise ValueError("always")

    return fail


def test_stock_tools_beside_a_running_job_do_no_harm(
    deployment: Deployment, driver: Client, tmp_path: Path, wait_at_gate: Callable[[], str]
) -> None:
    job = envq.Queue().enqueue(wait_at_gate)
    eventually(lambda: job.get_status() == "started")
    assert "default" in stock_rq(deployment, "info", cwd=tmp_path)
    stock = rq.Queue("default", connection=deployment.redis)
    rq.registry.clean_registries(stock)
    assert stock.started_job_registry.count == 1
    stock_rq(deployment, "worker", "--burst", "other", "default", cwd=tmp_path)
    for registry in (stock.failed_job_registry, stock.finished_job_registry):
        assert job.id not in registry.get_job_ids()
    assert job.get_status() == "started"
    open_gate(driver, job)
    assert envq.get(job, timeout=5) == "passed"


def test_a_stock_worker_runs_envqs_jobs_too_where_envq_is_installed(
    deployment: Deployment, driver: Client, tmp_path: Path
) -> None:
    job = envq.Queue("stock").enqueue(lambda: os.getpid())
    stock_rq(deployment, "worker", "--burst", "stock", cwd=tmp_path)
    assert envq.get(job, timeout=5) not in deployment.worker.descendants()


def test_higher_queues_come_first_and_every_queue_wakes_the_worker(driver: Client) -> None:
    def note(name: str) -> None:
        from rq import get_current_job

        job: Any = get_current_job()
        job.connection.rpush("order", name)
        job.connection.blpop(f"gate:{name}", timeout=30)

    first = envq.Queue("default").enqueue(note, "first")
    eventually(lambda: driver.connection.llen("order") == 1)
    jobs = [envq.Queue(name).enqueue(note, name) for name in ("default", "high")]
    driver.connection.rpush("gate:default", 1)
    driver.connection.rpush("gate:high", 1)
    driver.connection.rpush("gate:first", 1)
    envq.get([first, *jobs], timeout=10)
    assert driver.connection.lrange("order", 0, -1) == [b"first", b"high", b"default"]


def test_a_large_payload_is_not_written_again_with_the_result(deployment: Deployment, driver: Client) -> None:
    def received() -> int:
        return int(deployment.redis.info("stats")["total_net_input_bytes"])

    job = envq.Queue("aside").enqueue(len, os.urandom(1024 * 1024))
    before = received()
    deployment.redis.lmove("rq:queue:aside", "rq:queue:default", "LEFT", "RIGHT")
    assert envq.get(job, timeout=10) == 1024 * 1024
    eventually(lambda: deployment.redis.hget(f"rq:worker:{executor_of(deployment)}", "state") == b"idle")
    assert received() - before < 200 * 1024


def test_arguments_reach_neither_the_log_nor_the_description(deployment: Deployment, driver: Client) -> None:
    ours = envq.Queue().enqueue(lambda word: len(word), "s3cret-one")
    stock = rq.Queue(connection=driver.connection).enqueue("operator.add", "s3cret-", "two")
    assert envq.get([ours, envq.Job.fetch(stock.id)], timeout=10) == [10, "s3cret-two"]
    assert "s3cret" not in str(ours.description)
    eventually(lambda: f"{stock.id} finished" in deployment.worker.output)
    assert "s3cret" not in deployment.worker.output
