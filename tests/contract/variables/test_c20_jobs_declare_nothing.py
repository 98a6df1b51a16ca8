"""C20: an assignment in an executor never publishes and never builds a second copy."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from support.deployment import Deployment
from support.diary import Diary
from support.jobs import run
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq.driver.client import Client
from envq.environment import env

MODULE = """
import os
import redis
import envq

def make():
    with redis.Redis.from_url(os.environ["ENVQ_URL"]) as connection:
        connection.incr("test:builds")
    return ["till"]

envq.env.till = envq.EnvironmentVariable(make, lambda value: value, driver="never")

@envq.task
def read():
    return envq.env.till
"""


@pytest.fixture
def shop(tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module that declares when it is imported, imported by this driver and importable on the worker."""
    (tmp_path / "shop.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("shop")
    del sys.modules["shop"]


def test_the_same_code_means_nothing(
    shop: ModuleType, client: Client, worker: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    one = worker("-P", str(tmp_path))
    before = client.declarations.snapshot()
    assert [envq.get(shop.read.enqueue(), timeout=30) for _ in range(3)] == [["till"]] * 3
    assert client.declarations.snapshot() == before
    assert client.connection.get("test:builds") == b"1"
    assert "WARNING envq.env" not in one.output


def test_other_code_is_one_warning_that_names_both(
    shop: ModuleType, client: Client, worker: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    by_import = client.declarations.get("till").digest
    env.till = envq.EnvironmentVariable(lambda: ["another"], lambda value: value)
    one = worker("-P", str(tmp_path))
    before = client.declarations.snapshot()
    assert [envq.get(shop.read.enqueue(), timeout=30) for _ in range(3)] == [["another"]] * 3
    assert client.declarations.snapshot() == before
    assert client.connection.get("test:builds") is None
    warnings = [line for line in one.output.splitlines() if "WARNING envq.env" in line]
    assert len(warnings) == 1
    assert "'till'" in warnings[0]
    assert by_import[:12] in warnings[0]
    assert before.declarations["till"].digest[:12] in warnings[0]


def test_an_assignment_inside_a_job_is_ignored_with_one_warning(
    deployment: Deployment, client: Client, declare: Callable[..., None], diary: Diary
) -> None:
    write = diary.write
    declare("x", lambda: "declared", lambda value: value)

    def assign() -> str:
        import envq

        envq.env.x = envq.EnvironmentVariable(lambda: write("built") or "assigned")
        return envq.env.x

    assert [run(assign) for _ in range(3)] == ["declared"] * 3
    assert diary.entries == []
    assert client.declarations.get("x").version == 1

    def warned() -> None:
        lines = [line for line in deployment.worker.output.splitlines() if "'x'" in line and "WARNING" in line]
        assert len(lines) == 1

    eventually(warned)


def test_anything_else_assigned_inside_a_job_is_a_type_error_as_well(deployment: Deployment, client: Client) -> None:
    def assign() -> None:
        import envq

        envq.env.x = 42

    with pytest.raises(envq.JobFailed, match=r"InvalidDeclaration: envq\.env\.x takes an EnvironmentVariable"):
        run(assign)
