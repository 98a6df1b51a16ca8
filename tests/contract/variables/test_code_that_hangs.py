"""Code of variables that does not come to an end is ended; jobs and other variables go on, each by its own clock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import rq
from support.hanging import HANGS, hanging
from support.waiting import eventually

import envq
from envq.driver.client import Client
from envq.environment import env

WORKER = ("--kill-grace", "0.5")


@pytest.fixture
def hang(request: pytest.FixtureRequest) -> Callable[[], None]:
    return hanging(request.param)


@pytest.mark.parametrize("where", ["initializer", "reinitializer", "check", "teardown"])
@pytest.mark.parametrize("hang", HANGS, indirect=True)
@pytest.mark.usefixtures("deployment")
def test_code_of_a_variable(where: str, hang: Callable[[], None], client: Client) -> None:
    """Whatever of it hangs, the job that reads it has an end, and another variable and its jobs go on."""

    def once(value: Any = None) -> Any:
        """Hangs at its first call."""
        if driver_of_worker().connection.incr("hung") == 1:
            hang()
        return True if where == "check" else value or {}

    from envq.driver.client import default_client as driver_of_worker

    client.connection.delete("hung")
    options: dict[str, Any] = {"driver": "never", "init_timeout": 0.3, "reset_timeout": 0.3}
    if where == "initializer":
        env.stuck = envq.EnvironmentVariable(once, **options)
    elif where == "reinitializer":
        env.stuck = envq.EnvironmentVariable(dict, once, **options)
    else:
        env.stuck = envq.EnvironmentVariable(dict, lambda value: value, **{where: once}, **options)
    env.other = envq.EnvironmentVariable(lambda: "other", driver="never")

    def use(name: str) -> str:
        return str(getattr(envq.env, name))

    job = envq.Queue().enqueue(use, "stuck")
    if where == "teardown":
        assert envq.get(job, timeout=20) == "{}"
        del env.stuck
    else:
        eventually(lambda: client.connection.get("hung") not in (None, b"0"), timeout=20)
        envq.get(job, timeout=20, return_exceptions=True)
        envq.wait_ready("stuck", timeout=30)
        assert envq.get(envq.Queue().enqueue(use, "stuck"), timeout=30) == "{}"
    assert envq.get(envq.Queue().enqueue(use, "other"), timeout=20) == "other"


@pytest.mark.parametrize("hang", HANGS, indirect=True)
@pytest.mark.usefixtures("deployment")
def test_an_initializer_that_never_ends_is_ended_by_removing_it(hang: Callable[[], None], client: Client) -> None:
    def forever() -> None:
        from envq.driver.client import default_client

        default_client().connection.set("building", 1)
        hang()

    client.connection.delete("building")
    env.stuck = envq.EnvironmentVariable(forever, driver="never")
    eventually(lambda: client.connection.exists("building") == 1, timeout=20)
    del env.stuck
    assert envq.get(envq.Queue().enqueue(lambda: "fine"), timeout=5) == "fine"


@pytest.mark.usefixtures("deployment")
def test_no_clock_is_charged_for_what_another_measures(client: Client) -> None:
    """A job of 0.5 s waits 1 s in its queue, builds for 1 s, runs for 0.3 s and is reset for 1 s."""

    def slow_build() -> dict[str, int]:
        threading.Event().wait(1.0)
        return {}

    def slow_reset(value: dict[str, int]) -> dict[str, int]:
        threading.Event().wait(1.0)
        return value

    def use() -> int:
        threading.Event().wait(0.15)
        value = envq.env.slow
        threading.Event().wait(0.15)
        return len(value)

    ahead = envq.Queue().enqueue(lambda: threading.Event().wait(1.0))
    env.slow = envq.EnvironmentVariable(slow_build, slow_reset, build="lazy", driver="never")
    jobs = [envq.task(timeout=0.5)(use).enqueue() for _ in range(3)]
    assert envq.get([ahead, *jobs], timeout=30) == [False, 0, 0, 0]
    results = [job.latest_result() for job in jobs]
    assert all(result and result.type == rq.results.Result.Type.SUCCESSFUL for result in results)
