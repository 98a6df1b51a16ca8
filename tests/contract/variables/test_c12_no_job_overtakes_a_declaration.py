"""C12: a job enqueued after a declaration returned sees it, whatever becomes of pub/sub."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from support.deployment import Deployment
from support.diary import Diary
from support.gate import Gate
from support.jobs import enqueue, run
from support.workers import WorkerProcess

import envq
from envq.driver.client import Client, connect
from envq.environment import env

WORKER = ("-w", "2")
TIMES = 200
Disturb = Callable[[int], object]


@pytest.fixture(params=["pub/sub is cut", "never announced"])
def disturb(request: pytest.FixtureRequest, deployment: Deployment, client: Client) -> Iterator[Disturb]:
    """Called before each declaration."""
    if request.param == "never announced":
        deployment.redis.acl_setuser("mute", enabled=True, nopass=True, commands=["+@all", "-publish"], keys="*")
        connect(deployment.url.replace("://", "://mute:any@"))
    cut = request.param == "pub/sub is cut"
    yield lambda number: number % 5 or not cut or deployment.redis.client_kill_filter(_type="pubsub")


def declare(name: str, value: int) -> None:
    setattr(env, name, envq.EnvironmentVariable(lambda: value, lambda value: value))


def test_a_new_name_that_a_job_reads_at_once(client: Client, disturb: Disturb) -> None:
    jobs = []
    for number in range(TIMES):
        disturb(number)
        declare(f"name{number}", number)
        jobs.append(enqueue(lambda number=number: getattr(env, f"name{number}")))
    assert envq.get(jobs, timeout=50) == list(range(TIMES))


def test_one_name_declared_anew_and_anew(client: Client, disturb: Disturb) -> None:
    def read() -> int:
        return env.name

    for number in range(TIMES):
        disturb(number)
        declare("name", number)
        assert run(read) == number


def test_an_executor_that_slept_through_it(deployment: Deployment, client: Client) -> None:
    processes = [deployment.worker.pid, *deployment.worker.descendants()]
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        declare("missed", 42)
        job = enqueue(lambda: env.missed)
        deployment.redis.client_kill_filter(_type="pubsub")
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)
    assert envq.get(job, timeout=30) == 42


def test_a_generation_that_a_failover_turned_back(deployment: Deployment, client: Client) -> None:
    """Compared for equality: a counter that is lower than before is news as well."""
    declare("before", 1)
    run(lambda: env.before)
    deployment.redis.delete(client.keys.generation)
    declare("after", 2)
    assert client.declarations.snapshot().generation.startswith("1:")
    assert run(lambda: env.after) == 2


def test_a_worker_that_starts_in_the_middle_of_it(client: Client, worker: Callable[..., WorkerProcess]) -> None:
    declare("early", 1)
    worker("late", wait=False)
    jobs = []
    for number in range(50):
        declare(f"meanwhile{number}", number)
        jobs.append(enqueue(lambda number=number: getattr(env, f"meanwhile{number}"), queue="late"))
    assert envq.get(jobs, timeout=50) == list(range(50))


def test_a_burst_worker_that_catches_up_leaves_no_job_behind(
    client: Client, worker: Callable[..., WorkerProcess], diary: Diary, gate: Gate
) -> None:
    """Declared again while it builds what was declared before: the job goes back, and is taken again."""
    write, wait = diary.write, gate.wait

    def hold(name: str) -> None:
        write(name)
        wait()

    def make() -> str:
        hold("building")
        return "built"

    first = enqueue(hold, "running")
    burst = worker("--burst", wait=False)
    diary.wait_for("running")
    env.x = envq.EnvironmentVariable(make, lambda value: value)
    last = enqueue(lambda: (env.x, env.y))
    gate.open()
    diary.wait_for("running", "building")
    declare("y", 2)
    gate.open()
    assert burst.wait(30) == 0
    assert envq.get([first, last], timeout=5) == [None, ("built", 2)]


@pytest.mark.parametrize("header", [b"\xff{", b"[1]", b'{"name": "weird"}'])
def test_a_declaration_that_nobody_can_read_stops_nobody(client: Client, deployment: Deployment, header: bytes) -> None:
    client.connection.hset(client.keys.declarations, "weird", header)
    try:
        env.good = envq.EnvironmentVariable(lambda: 1, lambda value: value)
        assert run(lambda: env.good) == 1
    finally:
        client.connection.hdel(client.keys.declarations, "weird")
