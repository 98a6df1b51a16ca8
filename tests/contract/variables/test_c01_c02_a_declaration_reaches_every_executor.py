"""C1, C2: an assignment reaches executors that run and executors that join later; only code travels."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable

import pytest
import redis
from support.deployment import Deployment
from support.diary import Diary
from support.jobs import run, run_all
from support.workers import WorkerProcess

import envq
from envq.driver.client import Client
from envq.environment import env
from envq.store.records import VariableState

StartWorker = Callable[..., WorkerProcess]


def test_executors_that_run_and_those_that_join_later_hold_it(
    client: Client, worker: StartWorker, declare: Callable[..., None], states: Callable[[str], list[VariableState]]
) -> None:
    worker("-w", "2", executors=2)
    declare("answer", lambda: 42, workers=2)
    worker("--name", "late")
    envq.wait_ready("answer", workers=3, timeout=20)
    assert [(state.version, state.builds) for state in states("answer")] == [(1, 1)] * 3


def test_the_driver_has_it_too(client: Client) -> None:
    env.answer = envq.EnvironmentVariable(lambda: 42)
    assert env.answer == 42


def test_what_cannot_be_pickled_is_made_by_each_executor(
    client: Client, deployment: Deployment, declare: Callable[..., None]
) -> None:
    declare("lock", threading.Lock, lambda lock: lock)

    def use() -> tuple[str, bool]:
        with env.lock:
            return type(env.lock).__name__, env.lock.locked()

    assert run(use) == ("lock", True)


@pytest.mark.parametrize("given", [42, dict, lambda: 42, None], ids=["a value", "a class", "a function", "None"])
def test_anything_else_is_a_type_error_that_says_what_to_do(client: Client, given: object) -> None:
    with pytest.raises(TypeError, match=r"envq\.env\.x = envq\.EnvironmentVariable\("):
        env.x = given
    assert client.connection.keys("*") == []


def test_what_is_declared_before_connecting_is_published_in_order(
    run_script: Callable[..., subprocess.CompletedProcess[str]], redis_client: redis.Redis, redis_url: str
) -> None:
    done = run_script(
        """
        import socket, sys
        import envq

        def refuse(*arguments):
            raise AssertionError(f"I/O before connecting: {arguments}")

        connect, socket.socket.connect = socket.socket.connect, refuse
        envq.env.first = envq.EnvironmentVariable(lambda: 1)
        envq.env.second = envq.EnvironmentVariable(lambda: envq.env.first + 1)
        envq.env.third = envq.EnvironmentVariable(lambda: envq.env.second + 1)

        @envq.task
        def add():
            return envq.env.third

        socket.socket.connect = connect
        client = envq.connect(sys.argv[1])
        headers = client.declarations.snapshot().declarations
        print(sorted(headers, key=lambda name: headers[name].declared_at))
        print(envq.env.third)
        """,
        redis_url,
        env={"ENVQ_URL": "redis://127.0.0.1:1/0"},
    )
    assert done.stdout.splitlines() == ["['first', 'second', 'third']", "3"]
    assert redis_client.get("envq:default:generation").startswith(b"3:")  # type: ignore[union-attr]


def test_the_first_use_that_needs_redis_connects_and_publishes_first(
    run_script: Callable[..., subprocess.CompletedProcess[str]], deployment: Deployment
) -> None:
    done = run_script(
        """
        import envq

        def make():            return [1, 2, 3]
        def reset(values):     return values[:3]

        envq.env.values = envq.EnvironmentVariable(make, reset)

        @envq.task
        def append(x):
            envq.env.values.append(x)
            return envq.env.values

        print(envq.get([append.enqueue(x) for x in range(3)], timeout=20))
        """,
        env={"ENVQ_URL": deployment.url},
    )
    assert done.stdout == "[[1, 2, 3, 0], [1, 2, 3, 1], [1, 2, 3, 2]]\n"


def test_it_is_built_once_and_all_jobs_share_it(
    client: Client, deployment: Deployment, declare: Callable[..., None], diary: Diary
) -> None:
    """However slow the initializer: jobs pay for nothing but their own work."""
    write = diary.write

    def make() -> int:
        write("built")
        return os.getpid()

    declare("where", make, lambda where: where)
    assert len({pid for pids in run_all(lambda: (env.where, os.getpid()), 10) for pid in pids}) == 1
    assert diary.entries == ["built"]


def test_the_stock_cli_runs_them_with_its_options(client: Client, worker: StartWorker) -> None:
    env.answer = envq.EnvironmentVariable(lambda: 42)

    @envq.task(queue="low")
    def read() -> int:
        return env.answer

    job = read.enqueue()
    one = worker("high", "low", "--burst", "--name", "box", "-l", "WARNING", wait=False)
    assert one.wait(20) == 0
    assert envq.get(job, timeout=5) == 42
