"""C17: one suite for jobs on a worker, in `envq.testing.inline()`, and on a queue with `is_async=False`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import envq
import envq.testing
from envq.environment import env

Run = Callable[..., Any]


@pytest.fixture(params=["on a worker", "inline", "is_async=False"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """What a function returns as a job."""
    if request.param == "inline":
        with envq.testing.inline():
            yield lambda function: envq.get(envq.task(function).enqueue(), timeout=30)
        return
    for fixture in ("deployment", "client"):
        request.getfixturevalue(fixture)
    queue = envq.Queue(is_async=request.param == "on a worker")
    yield lambda function: envq.get(queue.enqueue(function), timeout=30)


def test_every_job_gets_a_fresh_value(run: Run) -> None:
    def append() -> list[int]:
        env.numbers.append(4)
        return env.numbers

    env.numbers = envq.EnvironmentVariable(lambda: [1, 2, 3])
    assert [run(append) for _ in range(3)] == [[1, 2, 3, 4]] * 3


def test_the_first_job_sees_what_the_initializer_made(run: Run) -> None:
    env.counter = envq.EnvironmentVariable(lambda: 0, lambda x: x + 1)
    assert [run(lambda: env.counter) for _ in range(3)] == [0, 1, 2]


def test_after_a_job_that_failed_the_next_one_finds_it_reset(run: Run) -> None:
    def spoil() -> None:
        env.numbers.append("dirty")
        raise ValueError("on purpose")

    env.numbers = envq.EnvironmentVariable(list, lambda values: values[:0])
    with pytest.raises(envq.JobFailed, match="on purpose"):
        run(spoil)
    assert run(lambda: env.numbers) == []


def test_the_drivers_copy_is_another_one(run: Run) -> None:
    env.numbers = envq.EnvironmentVariable(list, lambda values: values)
    env.numbers.append("the driver's")
    assert run(lambda: env.numbers) == []
    assert env.numbers == ["the driver's"]


def test_a_reset_that_fails_ends_in_a_rebuild(run: Run) -> None:
    def spoil() -> list[str]:
        env.numbers.append("dirty")
        return env.numbers

    env.numbers = envq.EnvironmentVariable(list, lambda values: None)
    assert [run(spoil) for _ in range(2)] == [["dirty"]] * 2


def test_a_check_that_says_no_rebuilds_before_the_read_returns(run: Run) -> None:
    env.thing = envq.EnvironmentVariable(lambda: {"well": True}, lambda value: value, check=lambda value: value["well"])
    run(lambda: env.thing.update(well=False))
    assert run(lambda: env.thing) == {"well": True}


def test_an_initializer_may_read_others_but_not_in_a_circle(run: Run) -> None:
    env.roof = envq.EnvironmentVariable(lambda: f"roof on {env.walls}", lambda value: value, driver="lazy")
    env.walls = envq.EnvironmentVariable(lambda: "walls", lambda value: value)
    assert run(lambda: env.roof) == "roof on walls"
    env.hen = envq.EnvironmentVariable(lambda: env.egg, driver="lazy")
    env.egg = envq.EnvironmentVariable(lambda: env.hen, driver="lazy")
    with pytest.raises(envq.JobFailed, match=r"DependencyCycle: .* in a circle"):
        run(lambda: env.egg)


@pytest.mark.parametrize("change", ["a reset", "a new version"])
def test_what_is_built_between_jobs_reads_what_the_jobs_read(run: Run, change: str) -> None:
    """And not the driver's copies."""

    def same() -> bool:
        return env.roof["ground"] is env.ground

    def make() -> dict[str, object]:
        return {"ground": env.ground}

    reset = None if change == "a reset" else lambda value: value
    env.ground = envq.EnvironmentVariable(list, lambda value: value)
    env.roof = envq.EnvironmentVariable(make, reset)
    assert env.roof["ground"] is env.ground
    assert run(same)
    if change == "a new version":
        env.roof = envq.EnvironmentVariable(lambda: {"ground": env.ground, "version": 2}, reset)
    assert run(same)


def test_a_failing_initializer_is_the_jobs_error(run: Run) -> None:
    env.broken = envq.EnvironmentVariable(lambda: 1 / 0)
    with pytest.raises(envq.JobFailed, match=r"(?s)EnvironmentVariableFailed: .*'broken'.*ZeroDivisionError"):
        run(lambda: env.broken)


def test_a_name_nobody_declared_is_told_with_those_that_are(run: Run) -> None:
    env.known = envq.EnvironmentVariable(list)
    with pytest.raises(
        envq.JobFailed, match=r"NotDeclared: .*'unknown' is not declared; did you mean 'known'\? \(known: known\)"
    ):
        run(lambda: env.unknown)


def test_other_code_takes_over_and_what_is_removed_is_gone(run: Run) -> None:
    env.model = envq.EnvironmentVariable(lambda: "first", lambda value: value)
    assert run(lambda: env.model) == "first"
    env.model = envq.EnvironmentVariable(lambda: "second", lambda value: value)
    assert run(lambda: env.model) == "second"
    del env.model
    with pytest.raises(envq.JobFailed, match="'model' is not declared"):
        run(lambda: env.model)


def test_a_job_declares_nothing(run: Run) -> None:
    def assign() -> str:
        import envq

        envq.env.model = envq.EnvironmentVariable(lambda: "by the job")
        return envq.env.model

    env.model = envq.EnvironmentVariable(lambda: "by the driver", lambda value: value)
    assert [run(assign) for _ in range(2)] == ["by the driver"] * 2
