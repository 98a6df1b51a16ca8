"""C10: teardown on every occasion, once, in reverse order of building, whatever it raises."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from support.deployment import Deployment
from support.diary import Diary
from support.jobs import run
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq.driver.client import Client
from envq.environment import env

Declare = Callable[..., None]
StartWorker = Callable[..., WorkerProcess]


def test_when_it_is_rebuilt_replaced_and_removed(
    deployment: Deployment, client: Client, declare: Declare, diary: Diary
) -> None:
    write = diary.write

    def let_go(value: str) -> None:
        write(f"let go of {value}")

    declare("x", lambda: "first", teardown=let_go)
    run(lambda: env.x)  # without a reinitializer the reset is a rebuild
    diary.wait_for("let go of first")
    declare("x", lambda: "second", lambda value: value, teardown=let_go)
    diary.wait_for(*["let go of first"] * 2)
    run(lambda: env.x)
    del env.x
    diary.wait_for(*["let go of first"] * 2, "let go of second")


def test_for_a_generator_it_is_what_follows_the_yield(
    deployment: Deployment, client: Client, declare: Declare, diary: Diary
) -> None:
    write = diary.write

    def make() -> Iterator[str]:
        write("open")
        try:
            yield "value"
        finally:
            write("close")

    async def make_async() -> object:
        write("open async")
        yield "value"
        write("close async")

    declare("x", make, lambda value: value, teardown=lambda value: write(f"teardown {value}"))
    assert run(lambda: env.x) == "value"
    del env.x
    diary.wait_for("open", "teardown value", "close")
    declare("y", make_async, lambda value: value)
    assert run(lambda: env.y) == "value"
    del env.y
    diary.wait_for("open", "teardown value", "close", "open async", "close async")


def test_when_the_worker_stops_in_reverse_order_of_building_whatever_one_raises(
    client: Client, worker: StartWorker, declare: Declare, diary: Diary
) -> None:
    write = diary.write

    def let_go(value: str) -> None:
        write(f"let go of {value}")
        raise ValueError("a teardown that raises")

    one = worker()
    env.ground = envq.EnvironmentVariable(lambda: "ground", lambda value: value, teardown=let_go)
    env.roof = envq.EnvironmentVariable(lambda: f"roof on {env.ground}", lambda value: value, teardown=let_go)
    env.last = envq.EnvironmentVariable(lambda: "last", lambda value: value, teardown=let_go)
    assert run(lambda: [env.roof, env.ground, env.last]) == ["roof on ground", "ground", "last"]
    assert one.stop() == 0
    assert diary.entries == ["let go of last", "let go of roof on ground", "let go of ground"]
    assert one.output.count("ValueError: a teardown that raises") == 3


def test_when_the_executor_is_recycled(client: Client, worker: StartWorker, diary: Diary) -> None:
    write = diary.write
    worker("--max-jobs-per-child", "1")

    def make() -> object:
        write("built")
        return object()

    env.x = envq.EnvironmentVariable(make, lambda value: value, teardown=lambda value: write("let go"))
    run(lambda: env.x is None)
    diary.wait_for("built", "built", "let go")


def test_not_after_sigkill(client: Client, worker: StartWorker, declare: Declare, diary: Diary) -> None:
    write = diary.write
    worker()

    def make() -> int:
        write("built")
        return os.getpid()

    declare("pid", make, lambda value: value, teardown=lambda value: write("let go"))
    os.kill(run(lambda: env.pid), signal.SIGKILL)
    diary.wait_for("built", "built")


@pytest.mark.parametrize("stuck", ["raises", "hangs"])
def test_a_teardown_that_fails_keeps_nothing_from_going_on(
    deployment: Deployment, client: Client, declare: Declare, stuck: str
) -> None:
    def let_go(value: int) -> None:
        import signal

        if stuck == "raises":
            raise ValueError("broken teardown")
        while True:
            signal.pause()

    declare(f"by_{stuck}", lambda: 1, teardown=let_go, reset_timeout=0.2)
    assert [run(lambda: getattr(env, f"by_{stuck}")) for _ in range(2)] == [1, 1]

    def logged() -> bool:
        return f"the teardown of 'by_{stuck}' raised, it is let go all the same" in deployment.worker.output

    eventually(logged)
