"""What a job finds around it: who it is, its meta, random numbers, one event loop, and results that must travel."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import rq
from rq import Retry
from support.waiting import eventually

import envq
from envq.driver.client import Client

YEAR_S = 365 * 24 * 3600


def test_a_job_knows_itself_and_keeps_its_meta(driver: Client) -> None:
    def report() -> tuple[str, object, str, str]:
        import os

        from rq import get_current_job

        job: Any = get_current_job()
        job.meta["progress"] = 0.5
        job.save_meta()
        job.meta["unsaved"] = 1
        return job.id, job.meta["given"], os.environ["RQ_JOB_ID"], os.environ["RQ_WORKER_ID"]

    job = envq.task(report).options(meta={"given": "before"}).enqueue()
    job_id, given, in_environment, worker = envq.get(job, timeout=10)
    assert (job_id, given, in_environment) == (job.id, "before", job.id)
    assert envq.Job.fetch(job.id).worker_name == worker
    assert rq.job.Job.fetch(job.id, driver.connection).meta["progress"] == 0.5


@pytest.mark.parametrize("job_id", ["short", "long-" * 200])
def test_what_a_job_starts_knows_the_job_whatever_the_one_before_did(driver: Client, job_id: str) -> None:
    def take_away() -> None:
        import os

        del os.environ["RQ_JOB_ID"]

    def told() -> str:
        import subprocess

        return subprocess.run(["printenv", "RQ_JOB_ID"], capture_output=True, text=True, check=True).stdout.strip()

    envq.get(envq.task(take_away).enqueue(), timeout=10)
    assert envq.get(envq.task(told).options(job_id=job_id).enqueue(), timeout=10) == job_id


def test_meta_saved_while_the_job_runs_is_seen_from_outside(driver: Client) -> None:
    def waits() -> None:
        from rq import get_current_job

        job: Any = get_current_job()
        job.meta["at"] = "the gate"
        job.save_meta()
        job.connection.blpop(f"gate:{job.id}", timeout=30)

    job = envq.Queue().enqueue(waits)
    eventually(lambda: rq.job.Job.fetch(job.id, driver.connection).meta == {"at": "the gate"})
    driver.connection.rpush(f"gate:{job.id}", 1)
    envq.get(job, timeout=10)


def test_a_job_enqueues_another_without_connecting(driver: Client) -> None:
    def parent() -> str:
        import envq

        return envq.Queue().enqueue("operator.add", 1, 2).id

    child = envq.get(envq.Queue().enqueue(parent), timeout=10)
    assert envq.get(child, timeout=10) == 3


def test_random_numbers_are_fresh_for_each_job_and_repeat_with_a_seed(driver: Client) -> None:
    def draw() -> tuple[float, float]:
        import random

        import numpy

        return random.random(), float(numpy.random.random())

    pytest.importorskip("numpy")
    random.seed(1)
    task = envq.task(draw)
    fresh = envq.get([task.enqueue() for _ in range(5)], timeout=20)
    assert len(set(fresh)) == 5
    seeded = envq.get([task.options(seed=7).enqueue() for _ in range(2)], timeout=10)
    assert seeded[0] == seeded[1]
    assert envq.get(task.options(seed=8).enqueue(), timeout=10) != seeded[0]


def test_coroutines_share_one_event_loop_and_leak_no_descriptors(driver: Client) -> None:
    async def look() -> tuple[int, int]:
        import asyncio
        import os

        await asyncio.sleep(0)
        return id(asyncio.get_running_loop()), len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    seen = envq.get([envq.Queue().enqueue(look) for _ in range(50)], timeout=30)
    assert len({loop for loop, _ in seen}) == 1
    assert len({descriptors for _, descriptors in seen[1:]}) == 1


def test_what_one_coroutine_job_made_another_can_await(driver: Client) -> None:
    async def keep() -> None:
        import asyncio
        import builtins

        builtins.kept_future = asyncio.get_running_loop().create_future()  # type: ignore[attr-defined]

    async def use() -> str:
        import asyncio
        import builtins

        future: Any = builtins.kept_future  # type: ignore[attr-defined]
        asyncio.get_running_loop().call_soon(future.set_result, "the same loop")
        return str(await future)

    envq.get(envq.Queue().enqueue(keep), timeout=10)
    assert envq.get(envq.Queue().enqueue(use), timeout=10) == "the same loop"


def test_tasks_a_job_leaves_on_the_loop_are_cancelled_before_the_next_job(driver: Client) -> None:
    async def leaves_one() -> None:
        import asyncio

        from rq import get_current_job

        job: Any = get_current_job()

        async def lingering() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                job.connection.set(f"cancelled:{job.id}", 1)

        job.meta["task"] = "made"
        asyncio.get_running_loop().create_task(lingering())
        await asyncio.sleep(0)

    async def count() -> int:
        import asyncio

        return len(asyncio.all_tasks())

    job = envq.Queue().enqueue(leaves_one)
    assert envq.get(envq.Queue().enqueue(count), timeout=10) == 1
    assert driver.connection.get(f"cancelled:{job.id}") == b"1"


@pytest.mark.parametrize("what", ["a lock", "a generator"])
def test_a_result_that_cannot_be_pickled_fails_the_job_and_says_so(what: str, driver: Client) -> None:
    def give(what: str) -> object:
        import threading

        return threading.Lock() if what == "a lock" else (x for x in "abc")

    job = envq.Queue().enqueue(give, what)
    with pytest.raises(envq.JobFailed, match=r"(?i)result.*pickle|pickle.*result"):
        envq.get(job, timeout=10)
    assert job.get_status() == "failed"


def test_a_result_of_a_class_that_only_the_driver_has_comes_back(driver: Client) -> None:
    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    def double(point: Point) -> Point:
        return Point(point.x * 2)

    assert envq.get(envq.Queue().enqueue(double, Point(4)), timeout=10).x == 8


def test_code_travels_once_and_a_job_whose_code_is_gone_says_which(driver: Client) -> None:
    def make(n: int) -> Callable[[int], int]:
        def add(x: int) -> int:
            return x + n

        return add

    function = make(41)
    first, second = (envq.Queue().enqueue(function, x) for x in (1, 2))
    assert first.code_digest == second.code_digest
    assert envq.get([first, second], timeout=10) == [42, 43]
    lost = envq.Queue("later").enqueue(make(99), 1)
    driver.connection.delete(driver.keys.code(lost.code_digest))
    driver.connection.lmove("rq:queue:later", "rq:queue:default", "LEFT", "RIGHT")
    with pytest.raises(envq.JobFailed) as raised:
        envq.get(lost, timeout=10)
    message = str(raised.value).splitlines()[0]
    assert "CodeMissing" in message
    assert lost.code_digest[:12] in message
    assert "make.<locals>.add" in message


def shorten(client: Client, job: envq.Job[Any]) -> str:
    """Let the code of a job end in an hour; its key."""
    key = client.keys.code(job.code_digest)
    assert client.connection.expire(key, 3600)
    return key


def test_each_enqueue_and_schedule_renews_the_code(driver: Client) -> None:
    def noted() -> str:
        return "renewed"

    task = envq.task(noted)
    key = shorten(driver, task.enqueue())
    task.enqueue()
    assert driver.connection.ttl(key) > YEAR_S
    shorten(driver, task.enqueue())
    scheduled = task.enqueue_in(2 * YEAR_S)
    assert driver.connection.ttl(key) > 3 * YEAR_S
    scheduled.delete()


@pytest.mark.parametrize("options", [{}, {"retry": Retry(1, interval=600)}], ids=["failed", "retried later"])
def test_a_failure_renews_the_code(options: dict[str, Any], driver: Client) -> None:
    def fails(gate: str) -> None:
        from rq import get_current_job

        job: Any = get_current_job()
        job.connection.blpop(gate, timeout=30)
        raise ValueError("kept for a year, and may be requeued")

    job = envq.task(fails).options(**options).enqueue(f"gate:{options}")
    key = shorten(driver, job)
    driver.connection.rpush(f"gate:{options}", 1)
    eventually(lambda: job.get_status() in ("failed", "scheduled"))
    assert driver.connection.ttl(key) > YEAR_S


def test_a_repeat_renews_the_code(driver: Client) -> None:
    def gated(gate: str) -> None:
        from rq import get_current_job

        job: Any = get_current_job()
        job.connection.blpop(gate, timeout=30)

    job = envq.task(gated).options(repeat=envq.Repeat(1, interval=600)).enqueue("gate:repeat")
    key = shorten(driver, job)
    driver.connection.rpush("gate:repeat", 1)
    eventually(lambda: job.get_status() == "scheduled")
    assert driver.connection.ttl(key) > YEAR_S
