"""C18: removed everywhere, with teardown, and clear to whoever reads it afterwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.cli import envq as command
from support.deployment import Deployment
from support.diary import Diary
from support.gate import Gate
from support.jobs import enqueue, run
from support.waiting import eventually

import envq
from envq.driver.client import Client
from envq.environment import env
from envq.store.records import VariableState

WORKER = ("-w", "2")


@pytest.mark.parametrize("way", ["del", "command"])
def test_every_executor_tears_it_down_and_reads_say_what_is_declared(
    deployment: Deployment,
    client: Client,
    declare: Callable[..., None],
    diary: Diary,
    states: Callable[[str], list[VariableState]],
    way: str,
) -> None:
    write = diary.write
    declare("kept", lambda: 1, lambda value: value, workers=2)
    declare("model", lambda: 1, lambda value: value, teardown=lambda value: write("torn down"), workers=2)
    if way == "del":
        del env.model
    else:
        done = command("env", "remove", "model", "--wait", "--timeout", "20", url=deployment.url)
        assert done.returncode == 0, done.stderr
        assert states("model") == []
    diary.wait_for("torn down", "torn down")
    with pytest.raises(envq.JobFailed, match=r"NotDeclared: .*'model' is not declared \(known: kept\)"):
        run(lambda: env.model)
    if way == "del":  # after the command this driver, which declared it, keeps its own copy
        with pytest.raises(envq.NotDeclared, match="kept"):
            _ = env.model
    with pytest.raises(envq.NotDeclared, match="kept"):
        del env.model
    assert run(lambda: env.kept) == 1


def test_declared_again_at_once_it_is_built_anew(
    deployment: Deployment, client: Client, declare: Callable[..., None], diary: Diary
) -> None:
    """The same code, and perhaps no executor has noticed the removal: it is another variable all the same."""
    write = diary.write

    def let_go(value: None) -> None:
        write("torn down")

    for _ in range(5):
        declare("model", lambda: write("built"), lambda value: value, teardown=let_go, workers=2)
        del env.model
    assert diary.count("built") == 10
    eventually(lambda: diary.count("torn down") == 10)
    assert dir(env) == []


def test_a_job_cannot_remove_it(deployment: Deployment, client: Client, declare: Callable[..., None]) -> None:
    declare("model", lambda: 1, lambda value: value, workers=2)

    def remove() -> None:
        import envq

        del envq.env.model

    with pytest.raises(envq.JobFailed, match="envq env remove model"):
        run(remove)
    assert run(lambda: env.model) == 1


def test_code_that_another_variable_is_declared_with_stays(client: Client) -> None:
    def make() -> int:
        return 1

    envq.env.one = envq.EnvironmentVariable(make, driver="never")
    envq.env.other = envq.EnvironmentVariable(make, driver="never")
    code = client.keys.code(client.declarations.get("one").digest)
    del envq.env.one
    assert client.connection.ttl(code) == -1, "executors that join later must still be able to build the other"
    envq.env.other = envq.EnvironmentVariable(lambda: 2, driver="never")
    assert client.connection.ttl(code) > 0


def test_what_was_removed_serves_no_more_although_nobody_looked_meanwhile(
    worker: Callable[..., object], client: Client, gate: Gate, declare: Callable[..., None]
) -> None:
    def fail() -> None:
        raise ValueError("not again")

    worker()
    declare("model", lambda: "old", lambda value: value)
    wait = gate.wait
    holding = enqueue(wait)
    eventually(lambda: holding.get_status().value == "started")
    del env.model
    env.model = envq.EnvironmentVariable(fail, driver="never")
    gate.open()
    with pytest.raises(envq.JobFailed, match="EnvironmentVariableFailed"):
        run(lambda: env.model)
