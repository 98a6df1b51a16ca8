"""An executor at one of its limits is replaced by a fresh one, which gets ready while the old one goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from support.diary import Diary
from support.gate import Gate
from support.jobs import enqueue, run, run_all
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq.driver.client import Client
from envq.environment import env

StartWorker = Callable[..., WorkerProcess]
MIB = 1024 * 1024


def gated(diary: Diary, gate: Gate) -> Callable[[], int]:
    """An initializer that takes until the gate is opened for it; the value is the executor's pid."""
    write, wait = diary.write, gate.wait

    def make() -> int:
        import os

        write("begun")
        wait()
        write("built")
        return os.getpid()

    return make


who = lambda: env.model  # noqa: E731 - travels by value


def declared(diary: Diary, gate: Gate, **options: Any) -> int:
    """The pid of the executor that holds the model."""
    write = diary.write
    env.model = envq.EnvironmentVariable(
        gated(diary, gate), lambda value: value, teardown=lambda value: write("let go"), **options
    )
    gate.open()
    return run(who)


def taken_over_from(old: int) -> Callable[[], bool]:
    return lambda: run(who) != old


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_old_one_goes_on_until_the_new_one_is_ready(
    client: Client, worker: StartWorker, diary: Diary, gate: Gate, method: str
) -> None:
    one = worker("--max-jobs-per-child", "20", "--start-method", method)
    old = declared(diary, gate)
    assert run_all(who, 19) == [old] * 19
    diary.wait_for("begun", "built", "begun")
    for _ in range(10):
        assert run(who) == old
    assert diary.entries == ["begun", "built", "begun"]
    gate.open()
    eventually(taken_over_from(old))
    diary.wait_for("begun", "built", "begun", "built", "let go")
    eventually(lambda: len(one.executors()) == 1)
    assert one.running


def test_it_never_runs_more_than_twice_as_many(client: Client, worker: StartWorker, diary: Diary, gate: Gate) -> None:
    worker("--max-jobs-per-child", "5")
    old = declared(diary, gate)
    assert run_all(who, 9) == [old] * 9
    eventually(lambda: (diary.count("begun"), diary.count("let go")) == (2, 1))
    waiting = enqueue(who)
    gate.open()
    assert envq.get(waiting, timeout=30) != old


@pytest.mark.parametrize("how", ["raises", "dies"])
def test_while_the_new_one_cannot_be_built_the_old_one_goes_on(
    client: Client, worker: StartWorker, diary: Diary, how: str
) -> None:
    url, write = client.settings.url, diary.write

    def make() -> int:
        import os

        import redis

        with redis.Redis.from_url(url) as connection:
            trouble = connection.get("trouble")
        write("begun")
        if trouble == b"raises":
            raise OSError("no room for two")
        if trouble == b"dies":
            os._exit(9)
        return os.getpid()

    one = worker("--max-jobs-per-child", "100")
    env.model = envq.EnvironmentVariable(make, lambda value: value)
    old = run(who)
    client.connection.set("trouble", how)
    assert run_all(who, 99) == [old] * 99
    eventually(lambda: diary.count("begun") >= 2)
    told = {"raises": "a fresh executor could not build model", "dies": "exited with code 9 while it built model"}
    eventually(lambda: told[how] in one.output)
    assert run_all(who, 10) == [old] * 10
    client.connection.delete("trouble")
    eventually(taken_over_from(old))
    assert client.connection.hgetall(client.keys.tries("model", 1)) == {}, "deaths beside another one are not counted"


def test_growth_counts_and_not_what_the_variables_need(client: Client, worker: StartWorker, diary: Diary) -> None:
    one = worker("--max-memory-per-child", "100")

    def make() -> tuple[int, bytes]:
        import os

        return os.getpid(), b"x" * (150 * MIB)

    def leak() -> None:
        import sys

        vars(sys).setdefault("leak", []).append(b"x" * (60 * MIB))

    def pid() -> int:
        return env.model[0]

    env.model = envq.EnvironmentVariable(make, lambda value: value)
    old = run(pid)
    assert run_all(pid, 3) == [old] * 3
    [before] = client.executors.all()
    assert before.memory.baseline_mib > 150
    run(leak)
    assert run(pid) == old

    def grown() -> None:
        [now] = client.executors.all()
        assert 50 < now.memory.grown_mib < 90
        assert now.memory.baseline_mib == before.memory.baseline_mib

    eventually(grown)
    run(leak)
    eventually(lambda: run(pid) != old)
    assert "the executor is replaced: it has grown by more than 100 MiB" in one.output
    assert one.running


def test_a_variable_of_which_two_do_not_fit_is_let_go_first(
    client: Client, worker: StartWorker, diary: Diary, gate: Gate
) -> None:
    worker("--max-jobs-per-child", "3")
    old = declared(diary, gate, replace="free")
    assert run_all(who, 2) == [old] * 2
    diary.wait_for("begun", "built", "let go", "begun")
    gate.open()
    assert run(who) != old


def test_a_hangup_replaces_without_a_pause_as_well(
    client: Client, worker: StartWorker, diary: Diary, gate: Gate
) -> None:
    one = worker()
    old = declared(diary, gate)
    one.send(signal.SIGHUP)
    diary.wait_for("begun", "built", "begun")
    assert run_all(who, 10) == [old] * 10
    gate.open()
    eventually(taken_over_from(old))


def test_the_death_of_the_old_one_leaves_the_new_one_in_its_place(
    client: Client, worker: StartWorker, diary: Diary, gate: Gate
) -> None:
    one = worker("--max-jobs-per-child", "2")
    old = declared(diary, gate)
    assert run(who) == old
    diary.wait_for("begun", "built", "begun")
    os.kill(old, signal.SIGKILL)
    gate.open()
    assert run(who) != old
    assert diary.entries == ["begun", "built", "begun", "built"]
    assert len(one.executors()) == 1


def test_a_stop_ends_both(client: Client, worker: StartWorker, diary: Diary, gate: Gate) -> None:
    one = worker("--max-jobs-per-child", "2")
    old = declared(diary, gate)
    assert run(who) == old
    diary.wait_for("begun", "built", "begun")
    assert one.stop() == 0
    assert diary.entries == ["begun", "built", "begun", "let go"]
    assert client.executors.all() == []
