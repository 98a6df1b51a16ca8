"""C13: what an initializer reads is built first, used with it, and takes it along when it changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.diary import Diary
from support.jobs import run

import envq
from envq.driver.client import Client
from envq.environment import env

pytestmark = pytest.mark.usefixtures("deployment")
Declare = Callable[..., None]


def test_what_it_reads_is_built_first_in_whatever_order_they_were_declared(
    client: Client, declare: Declare, diary: Diary
) -> None:
    write = diary.write

    def make(name: str, ground: str) -> Callable[[], str]:
        def make() -> str:
            below = getattr(env, ground) if ground else ""
            write(name)
            return f"{name} {below}".strip()

        return make

    for name, ground in (("roof", "walls"), ("walls", "floor"), ("floor", "")):
        setattr(env, name, envq.EnvironmentVariable(make(name, ground), lambda value: value, driver="never"))
    assert run(lambda: env.roof) == "roof walls floor"
    assert diary.entries == ["floor", "walls", "roof"]


def test_a_cycle_is_an_error_that_shows_it(client: Client) -> None:
    """Also where executors see one declaration after the other."""
    env.hen = envq.EnvironmentVariable(lambda: env.egg, driver="never")
    run(lambda: None)
    env.egg = envq.EnvironmentVariable(lambda: env.chick, driver="never")
    run(lambda: None)
    env.chick = envq.EnvironmentVariable(lambda: env.hen, driver="never")
    with pytest.raises(envq.JobFailed, match=r"DependencyCycle: .* in a circle: (hen|egg|chick) → "):
        run(lambda: env.hen)
    env.chick = envq.EnvironmentVariable(lambda: "hatched", driver="never")
    assert run(lambda: env.hen) == "hatched"


def test_using_one_counts_as_using_what_it_was_built_on(client: Client, declare: Declare, diary: Diary) -> None:
    write = diary.write

    def reset(value: list[str]) -> list[str]:
        write("reset")
        value.clear()
        return value

    declare("log", list, reset)
    declare("logger", lambda: env.log.append, lambda value: value)
    run(lambda: env.logger("dirty"))
    assert run(lambda: env.log) == []
    diary.wait_for("reset", "reset")


def test_what_becomes_another_object_rebuilds_what_was_built_on_it(
    client: Client, declare: Declare, diary: Diary
) -> None:
    write = diary.write

    def make_client() -> dict[str, object]:
        write("client built")
        return {"connection": env.connection}

    declare("connection", lambda: [], lambda value: [])
    declare("client", make_client, lambda value: value)
    same = "import envq; same = envq.env.client['connection'] is envq.env.connection"

    def is_same() -> bool:
        names: dict[str, bool] = {}
        exec(same, names)
        return names["same"]

    assert [run(is_same) for _ in range(2)] == [True, True]
    declare("connection", lambda: ["new"], lambda value: value)
    assert run(is_same)
    assert diary.entries == ["client built"] * 4


def test_a_value_is_torn_down_before_what_it_stands_on(client: Client, declare: Declare, diary: Diary) -> None:
    write = diary.write
    declare("ground", lambda: "ground", lambda value: value, teardown=lambda value: write(f"let go of {value}"))
    declare("roof", lambda: env.ground and "roof", lambda value: value, teardown=lambda value: write("let go of roof"))
    del env.ground
    diary.wait_for("let go of roof", "let go of ground")
    with pytest.raises(envq.JobFailed, match=r"'ground' is not declared"):
        run(lambda: env.roof)
