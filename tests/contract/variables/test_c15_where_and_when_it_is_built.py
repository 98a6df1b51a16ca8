"""C15: queues, lazy builds, and builds that stop the clock of their job."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rq.command import send_stop_job_command
from support.deployment import Deployment
from support.diary import Diary
from support.jobs import enqueue, run
from support.workers import WorkerProcess

import envq
from envq.driver.client import Client
from envq.environment import env
from envq.store.records import VariableState

Declare = Callable[..., None]
States = Callable[[str], list[VariableState]]


def test_only_workers_that_listen_on_one_of_its_queues_build_it(
    deployment: Deployment, client: Client, declare: Declare, worker: Callable[..., WorkerProcess], states: States
) -> None:
    worker("gpu", "video", url=deployment.url)
    declare("model", lambda: "on the card", lambda value: value, queues=["gpu", "other"])
    assert run(lambda: env.model, queue="gpu") == "on the card"
    assert run(lambda: env.model, queue="video") == "on the card"
    with pytest.raises(envq.JobFailed, match=r"NotDeclared: .*'model' is declared, but not for this worker"):
        run(lambda: env.model)
    assert [state.builds for state in states("model")] == [1]


def test_lazy_is_built_at_the_first_read(deployment: Deployment, client: Client, diary: Diary, states: States) -> None:
    write = diary.write
    env.model = envq.EnvironmentVariable(lambda: write("built") or "built", lambda value: value, build="lazy")
    env.other = envq.EnvironmentVariable(lambda: env.model, lambda value: value, build="lazy")
    run(lambda: None)
    assert diary.entries == []
    assert [run(lambda: env.other) for _ in range(2)] == ["built"] * 2
    assert diary.entries == ["built"]


def test_eager_is_built_before_any_job(deployment: Deployment, client: Client, declare: Declare, diary: Diary) -> None:
    write = diary.write
    declare("model", lambda: write("built"))
    assert diary.entries == ["built"]


def test_a_build_stops_the_clock_of_the_job(deployment: Deployment, client: Client) -> None:
    def slow() -> str:
        import threading

        threading.Event().wait(1.5)
        return "built"

    def read_and_work() -> str:
        import threading

        value = env.model
        threading.Event().wait(0.2)
        return value

    env.model = envq.EnvironmentVariable(slow, lambda value: value, build="lazy")
    assert run(read_and_work, timeout=0.8) == "built"


def test_the_clock_goes_on_after_the_build(deployment: Deployment, client: Client) -> None:
    def slow() -> str:
        import threading

        threading.Event().wait(0.6)
        return "built"

    def read_and_hang() -> None:
        import signal

        assert env.model == "built"
        while True:
            signal.pause()

    env.model = envq.EnvironmentVariable(slow, lambda value: value, build="lazy")
    with pytest.raises(envq.JobFailed, match=r"JobTimedOut: job exceeded its timeout of 0\.4 s"):
        run(read_and_hang, timeout=0.4)


def test_init_timeout_bounds_a_build_inside_a_job(deployment: Deployment, client: Client) -> None:
    def hang() -> None:
        import signal

        while True:
            signal.pause()

    env.model = envq.EnvironmentVariable(hang, build="lazy", init_timeout=0.2)
    with pytest.raises(envq.JobFailed, match=r"(?s)EnvironmentVariableFailed: .*ran longer than 0\.2 s"):
        run(lambda: env.model)


def test_threads_that_a_build_inside_a_job_started_are_not_the_jobs(
    deployment: Deployment, client: Client, diary: Diary
) -> None:
    write = diary.write

    def make() -> object:
        import threading

        write("built")
        ended = threading.Event()
        threading.Thread(target=ended.wait, daemon=True).start()
        return ended

    env.pool = envq.EnvironmentVariable(
        make,
        lambda value: value,
        build="lazy",
        check=lambda value: not value.is_set(),
        teardown=lambda value: value.set(),
    )
    assert [run(lambda: env.pool.is_set()) for _ in range(3)] == [False] * 3
    run(lambda: env.pool.set())
    assert [run(lambda: env.pool.is_set()) for _ in range(3)] == [False] * 3
    assert diary.entries == ["built"] * 2


def test_a_job_can_be_stopped_while_it_builds_and_the_next_one_builds(
    deployment: Deployment, client: Client, diary: Diary
) -> None:
    write, url = diary.write, client.settings.url

    def make() -> str:
        import signal

        import redis

        with redis.Redis.from_url(url) as connection:
            first = connection.incr("test:builds") == 1
        write("building")
        while first:
            signal.pause()
        return "built"

    env.model = envq.EnvironmentVariable(make, lambda value: value, build="lazy")
    stopped = enqueue(lambda: env.model)
    diary.wait_for("building")
    send_stop_job_command(client.connection, stopped.id)
    with pytest.raises(envq.JobStopped):
        envq.get(stopped, timeout=30)
    assert run(lambda: env.model) == "built"


def test_a_build_inside_a_job_that_kills_its_process_ends_in_quarantine(
    client: Client, worker: Callable[..., WorkerProcess]
) -> None:
    def make() -> object:
        import os

        os._exit(1)

    worker()
    env.poison = envq.EnvironmentVariable(make, build="lazy")
    with pytest.raises(envq.JobFailed, match=r"'poison' \(version 1\) is quarantined: its build killed 3 processes"):
        run(lambda: env.poison)
    assert run(lambda: "other jobs go on") == "other jobs go on"
