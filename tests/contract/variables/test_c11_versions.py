"""C11: same code, same version; other code takes over between jobs, or the old goes on serving."""

from __future__ import annotations

import json
import logging
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from support.cli import envq as command
from support.deployment import Deployment
from support.diary import Diary
from support.gate import Gate
from support.jobs import enqueue, run
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq.driver.client import Client
from envq.environment import env
from envq.store.records import VariableState

Declare = Callable[..., None]
States = Callable[[str], list[VariableState]]


def maker(diary: Diary, version: int) -> Callable[[], int]:
    write = diary.write

    def make() -> int:
        write(f"build {version}")
        return version

    return make


def test_declaring_the_same_while_scaling_builds_once_an_executor(
    client: Client, worker: Callable[..., WorkerProcess], diary: Diary, states: States
) -> None:
    for number in range(3):
        env.model = envq.EnvironmentVariable(maker(diary, 1), lambda value: value)
        worker("-w", str(number + 1), "--name", f"box{number}", wait=False)
        envq.wait_ready("model", workers=(number + 1) * (number + 2) // 2, timeout=30)
    generation = client.declarations.snapshot().generation
    env.model = envq.EnvironmentVariable(maker(diary, 1), lambda value: value)
    assert client.declarations.snapshot().generation == generation
    assert [(state.version, state.builds) for state in states("model")] == [(1, 1)] * 6
    assert diary.entries == ["build 1"] * 6


def test_a_script_that_runs_again_or_moved_its_lines_declares_nothing_new(
    deployment: Deployment, run_script: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    script = """
import envq
class Model:
    def __init__(self, size): self.size = size
def make(): return Model(3)
envq.env.model = envq.EnvironmentVariable(make, lambda value: value)
print(envq.connect().declarations.get("model").version)
"""
    env_ = {"ENVQ_URL": deployment.url}
    assert [run_script(text, env=env_).stdout for text in (script, script, "\n\n# a comment\n" + script)] == ["1\n"] * 3
    assert run_script(script.replace("Model(3)", "Model(4)"), env=env_).stdout == "2\n"


def test_other_code_takes_over_between_jobs_and_never_inside_one(
    deployment: Deployment, client: Client, declare: Declare, diary: Diary, gate: Gate
) -> None:
    write, wait = diary.write, gate.wait
    declare("model", maker(diary, 1), lambda value: value)

    def read_twice() -> tuple[int, int]:
        import envq

        before = envq.env.model
        write("running")
        wait()
        vars(envq.env).pop("model")  # so that the second read asks the executor again
        return before, envq.env.model

    running = enqueue(read_twice)
    diary.wait_for("build 1", "running")
    env.model = envq.EnvironmentVariable(maker(diary, 2), lambda value: value)
    after = enqueue(lambda: env.model)
    gate.open()
    assert envq.get([running, after], timeout=30) == [(1, 1), 2]
    assert diary.entries == ["build 1", "running", "build 2"]


@pytest.mark.parametrize(
    ("replace", "order"), [("keep", ["build 2", "let go of 1"]), ("free", ["let go of 1", "build 2"])]
)
def test_keep_builds_before_and_free_after_letting_the_old_value_go(
    deployment: Deployment, client: Client, declare: Declare, diary: Diary, replace: str, order: list[str]
) -> None:
    write = diary.write

    def let_go(value: int) -> None:
        write(f"let go of {value}")

    for version in (1, 2):
        declare("model", maker(diary, version), lambda value: value, teardown=let_go, replace=replace)
    diary.wait_for("build 1", *order)


def test_a_failing_update_leaves_the_old_version_serving_and_says_so(
    deployment: Deployment, client: Client, declare: Declare, diary: Diary, states: States
) -> None:
    declare("model", maker(diary, 1), lambda value: value)

    def broken() -> int:
        raise ValueError("no weights for version 2")

    env.model = envq.EnvironmentVariable(broken)
    assert run(lambda: env.model) == 1
    eventually(lambda: states("model")[0].state == "update failed")
    shown = json.loads(command("env", "show", "model", "--json", url=deployment.url).stdout)
    (executor,) = shown["executors"]
    assert (shown["version"], executor["version"], executor["state"]) == (2, 1, "update failed")
    assert "ValueError: no weights for version 2" in executor["error"]
    assert "in broken" in executor["error"]
    text = command("env", "show", "model", url=deployment.url).stdout
    assert "update failed" in text
    assert "ValueError: no weights for version 2" in text
    declare("model", maker(diary, 3), lambda value: value)
    assert run(lambda: env.model) == 3


def test_with_free_a_failing_update_leaves_nothing_to_serve(
    deployment: Deployment, client: Client, declare: Declare, diary: Diary, states: States
) -> None:
    declare("model", maker(diary, 1), lambda value: value)
    env.model = envq.EnvironmentVariable(lambda: 1 / 0, replace="free")
    eventually(lambda: [(state.state, state.version) for state in states("model")] == [("failed", 2)])
    with pytest.raises(envq.JobFailed, match=r"(?s)'model' \(version 2\).*ZeroDivisionError"):
        run(lambda: env.model)


def test_the_last_declaration_wins_and_who_and_when_are_recorded(
    deployment: Deployment, client: Client, declare: Declare, diary: Diary
) -> None:
    for version in (1, 2):
        env.model = envq.EnvironmentVariable(maker(diary, version), lambda value: value)
    assert run(lambda: env.model) == 2
    header = client.declarations.get("model")
    assert header.version == 2
    assert "pid" in header.declared_by
    assert header.declared_at.endswith("Z")


def test_an_explicit_version_is_never_replaced_by_a_lower_one(
    deployment: Deployment, client: Client, diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    for version in (5, 3):
        env.model = envq.EnvironmentVariable(maker(diary, version), lambda value: value, version=version)
    assert client.declarations.get("model").version == 5
    assert "stays at version 5" in caplog.text
    assert run(lambda: env.model) == 5
    assert env.model == 5
    env.model = envq.EnvironmentVariable(maker(diary, 6), lambda value: value, version=6)
    assert run(lambda: env.model) == 6


def test_a_notebook_that_goes_back_to_code_of_before_is_not_warned(
    deployment: Deployment, client: Client, diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 2, 1, 2):
        env.model = envq.EnvironmentVariable(maker(diary, number), lambda value: value)
    assert client.declarations.get("model").version == 4
    assert "take turns" not in caplog.text


def test_two_releases_that_take_turns_are_warned_about(
    deployment: Deployment,
    client: Client,
    diary: Diary,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.WARNING, "envq.env")

    def declare_release(number: int) -> None:
        monkeypatch.setattr("sys.argv", [f"release-{number}.py"])
        env.model = envq.EnvironmentVariable(maker(diary, number), lambda value: value)

    declare_release(1)
    declare_release(2)
    assert caplog.text == ""
    declare_release(1)
    assert "two releases take turns" in caplog.text
    assert re.search(r"version 3 \(.*release-1\.py\)\).* replaces version 2 \(.*release-2\.py\)\)", caplog.text)
    assert "version=" in caplog.text


def test_options_alone_build_nothing_anew(
    deployment: Deployment, client: Client, declare: Declare, diary: Diary
) -> None:
    options: list[dict[str, Any]] = [{}, {"init_timeout": 5.0}, {"reset_timeout": 5.0, "replace": "free"}]
    for each in options:
        declare("model", maker(diary, 1), lambda value: value, **each)
    assert run(lambda: env.model) == 1
    assert client.declarations.get("model").version == 1
    assert client.declarations.get("model").reset_timeout == 5.0
    assert diary.entries == ["build 1"]
