"""SIGTERM at any moment: the running job ends, nothing is lost, the exit code is 0."""

from __future__ import annotations

import contextlib
import random
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis
from rq import Queue
from support.waiting import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

ROUNDS = 100
JOBS_A_ROUND = 12


@pytest.fixture
def path_of_jobs(tmp_path: Any) -> Any:
    (tmp_path / "rounds.py").write_text(
        "import os, time, redis\n"
        "def note(number):\n"
        "    client = redis.Redis.from_url(os.environ['NOTES'])\n"
        "    client.rpush('begun', number)\n"
        "    time.sleep(0.02)\n"
        "    client.rpush('done', number)\n"
    )
    return tmp_path


def test_no_job_is_lost_and_every_exit_is_clean(
    worker: Any, redis_client: Redis, redis_url: str, path_of_jobs: Any, scaled: Callable[[int], int]
) -> None:
    queues = [Queue(name, connection=redis_client) for name in ("high", "low")]
    moments = random.Random(20261130)
    numbers = iter(range(10**6))
    enqueued: list[int] = []

    def start(*options: str, wait: bool) -> Any:
        return worker(
            "high", "low", "-w", "2", "-P", str(path_of_jobs), *options,
            executors=2, wait=wait, env={"NOTES": redis_url},
        )  # fmt: skip

    for _ in range(scaled(ROUNDS)):
        for _ in range(JOBS_A_ROUND):
            number = next(numbers)
            queues[number % 2].enqueue("rounds.note", number)
            enqueued.append(number)
        process = start(wait=False)
        eventually(lambda process=process: _said_something(process))
        with contextlib.suppress(AssertionError):
            process.wait(timeout=moments.uniform(0, 0.9))
        process.send(signal.SIGTERM)
        assert process.wait(timeout=30) == 0

    last = start("--burst", wait=False)
    assert last.wait(timeout=60) == 0
    done = Counter(int(number) for number in redis_client.lrange("done", 0, -1))
    assert sorted(done) == enqueued
    assert set(done.values()) == {1}, "a warm stop must not run a job twice"


def _said_something(process: Any) -> None:
    assert process.output
