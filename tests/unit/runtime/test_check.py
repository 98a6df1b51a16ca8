"""A check looks at the value at its first read in a job; a value that fails it is never handed out (C9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from envq.errors import EnvironmentVariableFailed, JobTimedOut
from envq.variables import REBUILD


class Client:
    def __init__(self) -> None:
        self.alive = True
        self.marks: list[str] = []


def is_alive(client: Client) -> bool:
    return client.alive


def clear(client: Client) -> Client:
    client.marks.clear()
    return client


def boom(*_: Any) -> Any:
    raise ValueError("boom")


def test_the_check_runs_at_the_first_read_in_each_job_only(world: Any) -> None:
    world.declare("client", Client, clear, check=world.noting("check", True))
    for _ in range(2):
        with world.job() as env:
            assert env.client is env.client is world.runtime.read("client")
    with world.job():
        pass
    assert world.log == ["check", "check"]


def test_a_value_that_fails_its_check_is_rebuilt_before_the_read_returns(world: Any) -> None:
    world.declare("client", Client, clear, check=is_alive, teardown=world.noting("teardown"))
    world.seen("client").alive = False
    with world.job() as env:
        assert env.client.alive
        assert env.client is env.client is world.runtime.read("client")
    assert world.log == ["teardown"]
    assert world.state("client").builds == 2


@pytest.mark.parametrize("answer", [False, None, 0, REBUILD])
def test_a_check_says_no_by_returning(world: Any, answer: object) -> None:
    world.declare("client", Client, clear, check=lambda _: answer)
    with world.job() as env:
        assert env.client.alive
    assert world.state("client").builds == 2


def test_a_check_that_raises_or_takes_too_long_says_no(world: Any, runs_too_long: Callable[..., Any]) -> None:
    for name, check in {"raises": boom, "exits": lambda _: exit(1), "hangs": runs_too_long}.items():
        world.declare(name, Client, clear, check=check)
        assert world.seen(name).alive
        assert world.state(name).builds == 2


def test_what_a_check_rebuilt_is_reset_after_the_job(world: Any) -> None:
    world.declare("client", Client, clear, check=is_alive)
    world.seen("client").alive = False
    with world.job() as env:
        client = env.client
        client.marks.append("dirty")
    assert client.marks == []


def test_a_failing_rebuild_fails_the_read(world: Any) -> None:
    makers = [Client, boom]
    world.declare("client", lambda: makers.pop(0)(), clear, check=is_alive)
    world.seen("client").alive = False
    with world.job() as env, pytest.raises(EnvironmentVariableFailed, match="boom"):
        env.client  # noqa: B018


def test_an_interrupted_check_reaches_the_job_and_the_value_is_not_trusted(world: Any) -> None:
    answers = [JobTimedOut("late"), True]

    def check(client: Client) -> bool:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    world.declare("client", Client, clear, check=check)
    with pytest.raises(JobTimedOut), world.job() as env:
        env.client  # noqa: B018
    assert world.state("client").builds == 2
    assert world.seen("client").alive


def test_a_teardown_interrupted_under_a_read_reaches_the_job(world: Any) -> None:
    def teardown(_: Client) -> None:
        raise JobTimedOut("late")

    world.declare("client", Client, clear, check=is_alive, teardown=teardown)
    world.seen("client").alive = False
    with pytest.raises(JobTimedOut), world.job() as env:
        env.client  # noqa: B018
    assert world.seen("client").alive


def test_reading_what_stands_on_a_value_checks_that_value_too(world: Any) -> None:
    world.declare("connection", Client, clear, check=is_alive)
    world.declare("repository", lambda: [world.env.connection], lambda repository: repository)
    world.seen("connection").alive = False
    with world.job() as env:
        assert env.repository[0].alive
        assert env.repository[0] is env.connection


def test_a_check_may_read_other_variables_and_itself(world: Any) -> None:
    def check(client: Client) -> bool:
        return world.env.client is client and world.env.settings["alive"]

    world.declare("settings", lambda: {"alive": True}, lambda settings: settings)
    world.declare("client", Client, clear, check=check)
    with world.job() as env:
        assert env.client.alive
        assert set(world.runtime.used) == {"client", "settings"}
    assert world.state("client").builds == 1


def test_coroutine_checks_are_awaited(world: Any) -> None:
    async def check(client: Client) -> bool:
        return client.alive

    world.declare("client", Client, clear, check=check)
    world.seen("client").alive = False
    assert world.seen("client").alive
