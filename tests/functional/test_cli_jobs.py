"""`envq jobs cancel`: what waits is cancelled, what runs is stopped, nothing is unpickled."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
import rq
from support.cli import assert_one_line, envq
from support.waiting import eventually
from support.workers import WorkerProcess

MODULE = """
import itertools
import os
import signal
import threading

import redis


def _begin(url, name):
    redis.Redis.from_url(url).set(name, os.getpid())


def wait(url, name):
    _begin(url, name)
    threading.Event().wait(60)


def wait_without_signals(url, name):
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    wait(url, name)


def swallow(url, name):
    _begin(url, name)
    while True:
        try:
            threading.Event().wait(0.05)
        except BaseException:
            pass


def stay_in_c(url, name):
    _begin(url, name)
    sum(itertools.repeat(1, 10**12))


def nothing():
    pass
"""


@pytest.fixture
def work(worker: Callable[..., WorkerProcess], tmp_path: Path) -> Callable[..., WorkerProcess]:
    """A factory of workers that can import `chores`."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "chores.py").write_text(MODULE)

    def work(*arguments: str) -> WorkerProcess:
        return worker("-P", str(tmp_path / "modules"), "--kill-grace", "0.5", *arguments)

    return work


@pytest.fixture
def queue(redis_client: redis.Redis) -> rq.Queue:
    return rq.Queue("default", connection=redis_client)


def begin(queue: rq.Queue, url: str, function: str, name: str = "begun", **options: Any) -> rq.job.Job:
    """Enqueue it, and wait until its own code runs."""
    job = queue.enqueue(f"chores.{function}", url, name, **options)
    eventually(lambda: queue.connection.exists(name) == 1)
    return job


class Spy:
    """Leaves a file where it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, int]]:
        return os.open, (self.path, os.O_CREAT)


def test_jobs_that_wait_are_cancelled_as_rq_does_and_nothing_is_unpickled(
    redis_url: str, queue: rq.Queue, tmp_path: Path
) -> None:
    spy = {"spy": Spy(str(tmp_path / "unpickled"))}
    waiting = queue.enqueue("time.time", meta=spy)
    scheduled = queue.enqueue_in(timedelta(hours=1), "time.time", meta=spy)
    deferred = queue.enqueue("time.time", depends_on=waiting, meta=spy)
    (tmp_path / "unpickled").unlink()  # RQ's producer does, for what depends on others
    done = envq("jobs", "cancel", scheduled.id, deferred.id, waiting.id, url=redis_url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"job {scheduled.id} cancelled, it was scheduled",
        f"job {deferred.id} cancelled, it was deferred",
        f"job {waiting.id} cancelled, it was queued",
    ]
    assert not (tmp_path / "unpickled").exists()
    assert queue.job_ids == []
    assert sorted(queue.canceled_job_registry.get_job_ids()) == sorted(job.id for job in (waiting, scheduled, deferred))
    assert queue.scheduled_job_registry.get_job_ids() == queue.deferred_job_registry.get_job_ids() == []


def test_what_waits_for_a_cancelled_job_runs_if_that_is_asked_for(
    redis_url: str, queue: rq.Queue, tmp_path: Path
) -> None:
    spy = {"spy": Spy(str(tmp_path / "unpickled"))}
    first, second = queue.enqueue("time.time"), queue.enqueue("time.time")
    stays = queue.enqueue("time.time", depends_on=rq.job.Dependency(first, allow_failure=True), meta=spy)
    follows = queue.enqueue("time.time", depends_on=rq.job.Dependency(second, allow_failure=True), meta=spy)
    assert envq("jobs", "cancel", first.id, url=redis_url).returncode == 0
    assert envq("jobs", "cancel", second.id, "--enqueue-dependents", url=redis_url).returncode == 0
    assert stays.get_status() == "deferred"
    assert queue.job_ids == [follows.id]
    assert queue.connection.hget(follows.key, "meta"), "what was not read was not written either"
    assert not (tmp_path / "unpickled").exists()


def test_a_job_that_ended_and_one_that_never_was_get_one_sentence_each(redis_url: str, queue: rq.Queue) -> None:
    ended = queue.enqueue("time.time")
    queue.connection.hset(ended.key, "status", "finished")
    assert_one_line(envq("jobs", "cancel", ended.id, url=redis_url), 1, f"job {ended.id} has ended already: finished")
    assert_one_line(envq("jobs", "cancel", "nobody", url=redis_url), 1, "there is no job nobody")
    waiting = queue.enqueue("time.time")
    done = envq("jobs", "cancel", "nobody", waiting.id, url=redis_url)
    assert done.returncode == 1
    assert waiting.get_status() == "canceled", "the others are cancelled all the same"
    assert_one_line(envq("jobs", "cancel", url=redis_url), 2, "ID")


@pytest.mark.parametrize("function", ["wait", "wait_without_signals", "swallow", "stay_in_c"])
def test_a_running_job_is_stopped_whatever_it_does(
    function: str, work: Callable[..., WorkerProcess], redis_url: str, queue: rq.Queue, tmp_path: Path
) -> None:
    work()
    spy = {"spy": Spy(str(tmp_path / "unpickled"))}
    job = begin(queue, redis_url, function, meta=spy, retry=rq.Retry(3))
    done = envq("jobs", "cancel", job.id, url=redis_url)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"job {job.id} stopped\n", "")
    assert queue.connection.hget(job.key, "status") == b"stopped"
    after = queue.enqueue("chores.nothing")
    eventually(lambda: after.get_status() == "finished")


def test_without_waiting_the_command_returns_at_once(
    work: Callable[..., WorkerProcess], redis_url: str, queue: rq.Queue
) -> None:
    [name] = work().executors()
    job = begin(queue, redis_url, "wait")
    done = envq("jobs", "cancel", job.id, "--no-wait", url=redis_url)
    assert (done.returncode, done.stdout) == (0, f"executor {name} is told to stop job {job.id}\n")
    eventually(lambda: job.get_status() == "stopped")


def test_a_job_that_was_claimed_and_waits_behind_another_does_not_run(
    work: Callable[..., WorkerProcess], redis_url: str, queue: rq.Queue
) -> None:
    work()
    jobs = [queue.enqueue("chores.nothing") for _ in range(400)]
    eventually(lambda: jobs[-1].get_status() == "finished")
    with queue.connection.pipeline() as pipeline:
        datas = [
            queue.prepare_data(f"chores.{name}", (redis_url, f"{number}:begun"))
            for number, name in enumerate(["wait"] * 2)
        ]
        first, second = queue.enqueue_many(datas, pipeline=pipeline)
        pipeline.execute()
    eventually(lambda: queue.connection.exists("0:begun") == 1)
    assert envq("jobs", "cancel", second.id, url=redis_url).returncode == 0
    assert second.get_status() in ("canceled", "stopped")
    assert envq("jobs", "cancel", first.id, url=redis_url).returncode == 0
    assert not queue.connection.exists("1:begun")


def test_a_job_whose_worker_does_not_listen_is_given_up_with_a_sentence(
    work: Callable[..., WorkerProcess], redis_url: str, queue: rq.Queue
) -> None:
    running = work()
    job = begin(queue, redis_url, "wait")
    os.kill(running.pid, signal.SIGSTOP)
    try:
        done = envq("jobs", "cancel", job.id, "--timeout", "0.5", url=redis_url)
    finally:
        os.kill(running.pid, signal.SIGCONT)
    assert_one_line(done, 1, f"job {job.id} has not stopped", "executor")
