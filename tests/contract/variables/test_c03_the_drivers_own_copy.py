"""C3: when the driver builds a copy of its own, and that it is never reset."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from support.deployment import Deployment
from support.jobs import run

import envq
from envq.driver.client import Client
from envq.environment import env

RunScript = Callable[..., subprocess.CompletedProcess[str]]

SCRIPT = """
import sys
import envq

def make():
    print("built")
    return []

envq.env.x = envq.EnvironmentVariable(make, driver=sys.argv[1])
envq.connect()
print("connected")
envq.env.x.append(1)
print(envq.env.x)
"""


@pytest.mark.parametrize("mode", ["auto", "eager"])
def test_code_of_a_script_is_built_at_publication(run_script: RunScript, mode: str) -> None:
    assert run_script(SCRIPT, mode).stdout.splitlines() == ["built", "connected", "[1]"]


def test_lazy_is_built_at_the_first_read(run_script: RunScript) -> None:
    assert run_script(SCRIPT, "lazy").stdout.splitlines() == ["connected", "built", "[1]"]


def test_never_refuses_reads_and_says_why(run_script: RunScript) -> None:
    done = run_script(SCRIPT, "never", check=False)
    assert done.stdout.splitlines() == ["connected"]
    assert "DriverReadRefused" in done.stderr
    assert "'x' exists on workers only" in done.stderr


def test_importable_code_is_built_at_the_first_read(client: Client) -> None:
    built: list[int] = []
    env.x = envq.EnvironmentVariable(lambda: built.append(1) or "value")
    assert built == []
    assert [env.x, env.x] == ["value", "value"]
    assert built == [1]


def test_the_copy_is_never_reset_and_apart_from_the_workers(
    client: Client, deployment: Deployment, declare: Callable[..., None]
) -> None:
    declare("numbers", lambda: [], lambda numbers: [])
    env.numbers.append("mine")

    def append() -> list[str]:
        env.numbers.append("job")
        return env.numbers

    assert [run(append) for _ in range(2)] == [["job"], ["job"]]
    assert env.numbers == ["mine"]


def test_an_eager_build_that_raises_raises_there_and_publishes_nothing(client: Client) -> None:
    with pytest.raises(ZeroDivisionError):
        env.broken = envq.EnvironmentVariable(lambda: 1 / 0, driver="eager")
    assert client.declarations.snapshot().declarations == {}


def test_under_the_same_explicit_version_the_copy_is_what_the_workers_hold(
    client: Client, deployment: Deployment, declare: Callable[..., None]
) -> None:
    declare("model", lambda: "first", version=7)
    declare("model", lambda: "second", version=7)
    assert [run(lambda: env.model), env.model] == ["first", "first"]


def test_a_copy_of_what_somebody_else_removed_ends_with_del(client: Client) -> None:
    ended: list[str] = []
    env.model = envq.EnvironmentVariable(lambda: "mine", teardown=ended.append)
    assert env.model == "mine"
    client.declarations.remove("model")
    with pytest.raises(envq.NotDeclared):
        del env.model
    assert ended == ["mine"]
    assert not hasattr(env, "model")
