"""C16: by value when it must, by name when it can, and never into another Python minor version unseen."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from support.cli import envq as command
from support.deployment import Deployment
from support.diary import Diary
from support.jobs import enqueue, run
from support.processes import clean_environment
from support.pythons import find_pythons
from support.workers import WorkerProcess

import envq
from envq.code.payload import Blob
from envq.driver.client import Client
from envq.environment import env

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
StartWorker = Callable[..., WorkerProcess]


class Explosive:
    """Writes into Redis where it is unpickled."""

    def __init__(self, client: Client) -> None:
        self._url = client.settings.url

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (f"import redis; redis.Redis.from_url({self._url!r}).set('test:unpickled', 1)",)


def pretend_python(client: Client, python: str) -> None:
    """Give every stored blob the header of another Python, and a body that tells when it is unpickled."""
    for key in client.connection.scan_iter(client.keys.code("*")):
        blob = Blob.unpack(client.connection.get(key))  # type: ignore[arg-type]
        body = pickle.dumps(Explosive(client))
        client.connection.set(key, Blob(replace(blob.header, python=python, size=len(body)), body).pack())


def test_a_variable_by_value_from_another_python_is_refused_before_unpickling(
    client: Client, worker: StartWorker
) -> None:
    env.model = envq.EnvironmentVariable(lambda: 1, driver="never")
    pretend_python(client, "3.9")
    one = worker()
    job = enqueue(lambda: env.model)
    with pytest.raises(envq.JobFailed, match=rf"(?s)'model'.*PythonVersionMismatch: .*Python 3\.9.*Python {HERE}"):
        envq.get(job, timeout=30)
    assert "PythonVersionMismatch" in one.output
    assert client.connection.get("test:unpickled") is None


def test_a_function_by_value_from_another_python_is_refused_before_unpickling(
    client: Client, worker: StartWorker
) -> None:
    job = enqueue(lambda: 1)
    pretend_python(client, "3.9")
    worker()
    with pytest.raises(envq.JobFailed, match=rf"PythonVersionMismatch: .*Python 3\.9.*Python {HERE}"):
        envq.get(job, timeout=30)
    assert client.connection.get("test:unpickled") is None


@pytest.mark.parametrize("minor", [minor for minor in find_pythons() if minor != HERE] or ["none"])
def test_a_driver_on_another_python(deployment: Deployment, client: Client, minor: str, tmp_path: Path) -> None:
    if minor == "none":
        pytest.skip("no other Python is installed here")
    script = tmp_path / "driver.py"
    script.write_text(f"""
import site
site.addsitedir({sysconfig.get_path("purelib")!r})
import envq
envq.env.by_value = envq.EnvironmentVariable(lambda: 1)
envq.env.by_name = envq.EnvironmentVariable("collections:Counter")
envq.connect()
""")
    subprocess.run(
        [find_pythons()[minor], script],
        env=clean_environment({"ENVQ_URL": deployment.url}),
        check=True,
        capture_output=True,
        timeout=60,
    )
    with pytest.raises(envq.JobFailed, match=rf"(?s)PythonVersionMismatch: .*Python {minor}.*Python {HERE}"):
        run(lambda: env.by_value)
    assert run(lambda: type(env.by_name).__name__) == "Counter"


def test_paths_from_the_command_line_need_no_code_of_the_driver(
    client: Client, worker: StartWorker, tmp_path: Path
) -> None:
    (tmp_path / "house.py").write_text("def build(): return ['bricks']\ndef tidy(value): return value[:1]\n")
    worker("-P", str(tmp_path))
    declared = command("env", "declare", "house", "house:build", "--reset", "house:tidy", url=client.settings.url)
    assert declared.returncode == 0, declared.stderr

    def append() -> list[str]:
        env.house.append("dirt")
        return env.house

    assert [run(append) for _ in range(2)] == [["bricks", "dirt"]] * 2
    assert not client.declarations.get("house").by_value


def test_a_path_that_the_worker_cannot_import_says_so(deployment: Deployment, client: Client) -> None:
    env.house = envq.EnvironmentVariable("nowhere.house:build", driver="never")
    with pytest.raises(envq.JobFailed, match=r"(?s)'house'.*'nowhere.*on this worker"):
        run(lambda: env.house)


def test_importable_code_goes_by_name(deployment: Deployment, client: Client) -> None:
    import collections

    env.counter = envq.EnvironmentVariable(collections.Counter, collections.Counter.copy)
    assert run(lambda: type(env.counter).__name__) == "Counter"
    assert not client.declarations.get("counter").by_value


def test_a_module_that_workers_do_not_have_can_be_shipped(
    deployment: Deployment, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home_made.py").write_text("class Model:\n    size = 3\n\ndef make():\n    return Model()\n")
    monkeypatch.syspath_prepend(tmp_path)
    import home_made  # type: ignore[import-not-found]

    env.model = envq.EnvironmentVariable(home_made.make, driver="never")
    with pytest.raises(envq.JobFailed, match=r"(?s)no module 'home_made' on this worker.*envq\.ship"):
        run(lambda: env.model)
    envq.ship(home_made)
    env.model = envq.EnvironmentVariable(home_made.make, driver="never")
    assert run(lambda: env.model.size) == 3


@pytest.mark.parametrize(
    ("make", "kind"),
    [(socket.socket, "socket"), (threading.Lock, "lock"), (lambda: redis.Redis.from_url("redis://x"), "Redis")],
    ids=["socket", "lock", "redis"],
)
def test_what_closes_over_a_connection_or_a_lock_is_refused_where_it_is_declared(
    client: Client, make: Callable[[], Any], kind: str
) -> None:
    captured = make()
    with pytest.raises(envq.PayloadError, match=rf"variable model(?s:.*)captured(?s:.*){kind}"):
        env.model = envq.EnvironmentVariable(lambda: captured)
    if isinstance(captured, socket.socket):
        captured.close()
    assert client.declarations.snapshot().declarations == {}


def test_what_is_too_big_is_refused_where_it_is_declared(
    client: Client, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = bytes(17 * 1024 * 1024)
    with pytest.raises(envq.PayloadTooLarge, match=r"variable model(?s:.*)weights"):
        env.model = envq.EnvironmentVariable(lambda: weights)
