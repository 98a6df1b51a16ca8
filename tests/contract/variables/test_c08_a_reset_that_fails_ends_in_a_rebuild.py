"""C8: what cannot be put back is torn down and built anew, with a warning; never dirty, never None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.deployment import Deployment
from support.diary import Diary
from support.jobs import run
from support.waiting import eventually

import envq
from envq.driver.client import Client
from envq.environment import env

pytestmark = pytest.mark.usefixtures("deployment")
Declare = Callable[..., None]


def raise_error(value: Any) -> Any:
    raise ValueError("no way back")


def raise_exit(value: Any) -> Any:
    raise SystemExit("no way back")


def hang(value: Any) -> Any:
    import signal

    while True:
        signal.pause()


def give_up(value: Any) -> Any:
    return envq.REBUILD


def forget_the_return(value: Any) -> Any:
    value.clear()


WAYS = {
    raise_error: "its reinitializer raised ValueError: no way back",
    raise_exit: "its reinitializer raised SystemExit: no way back",
    hang: "its reinitializer ran past reset_timeout (0.2 s)",
    give_up: "its reinitializer returned envq.REBUILD",
    forget_the_return: "its reinitializer returned None (is a `return` missing?)",
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_it_is_torn_down_and_built_anew_with_a_warning(
    deployment: Deployment, client: Client, declare: Declare, diary: Diary, way: Callable[[Any], Any]
) -> None:
    write, name = diary.write, f"by_{way.__name__}"

    def make() -> list[str]:
        write("built")
        return []

    envq.ship(way.__module__)
    declare(name, make, way, teardown=lambda value: write("torn down"), reset_timeout=0.2)

    def append() -> list[str]:
        value = getattr(env, name)
        value.append("dirty")
        return value

    assert [run(append) for _ in range(2)] == [["dirty"]] * 2
    diary.wait_for("built", *["torn down", "built"] * 2)

    def warned() -> None:
        line = f"environment variable '{name}' is rebuilt after a job: {WAYS[way]}"
        warnings = [each for each in deployment.worker.output.splitlines() if line in each]
        assert len(warnings) == 2
        assert all("WARNING" in each for each in warnings)

    eventually(warned)


def test_none_is_put_back_as_none(client: Client, declare: Declare, diary: Diary) -> None:
    write = diary.write
    declare("nothing", lambda: write("built"), lambda value: None)
    assert [run(lambda: env.nothing) for _ in range(3)] == [None] * 3
    assert diary.entries == ["built"]


def test_a_failed_reset_never_changes_the_result_of_the_job(client: Client, declare: Declare) -> None:
    envq.ship(raise_error.__module__)
    declare("x", list, raise_error)
    assert run(lambda: len(env.x)) == 0


def test_a_rebuild_that_fails_hands_out_nothing(client: Client, declare: Declare) -> None:
    url = client.settings.url

    def make_once() -> list[str]:
        import redis

        with redis.Redis.from_url(url) as connection:
            if connection.incr("test:builds") > 1:
                raise ValueError("only once")
        return []

    envq.ship(raise_error.__module__)
    declare("once", make_once, raise_error)

    def append() -> list[str]:
        env.once.append("dirty")
        return env.once

    assert run(append) == ["dirty"]
    with pytest.raises(envq.JobFailed, match=r"EnvironmentVariableFailed: (?s:.*)only once"):
        run(append)
