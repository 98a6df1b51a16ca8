"""`envq worker` as a command: its banner, its environment, its end."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from support.cli import COMMAND, envq
from support.processes import Process
from support.proxy import CUT_BEFORE, CuttingProxy
from support.servers import Server, free_port
from support.waiting import eventually
from support.workers import WorkerProcess


def test_the_banner_says_who_it_is_and_what_it_will_do(worker: Callable[..., WorkerProcess], redis_url: str) -> None:
    assert envq("env", "declare", "table", "collections:Counter", url=redis_url).returncode == 0
    running = worker("high", "low", "--no-scheduler", "--name", "web")
    for part in (
        "envq ",
        "worker web",
        "1 executor",
        "scheduler off",
        "127.0.0.1",
        "high, low",
        "table v1",
        "persistence",
    ):
        assert part in running.output


def test_quiet_shows_no_banner_and_json_lines_are_json(worker: Callable[..., WorkerProcess]) -> None:
    assert "envq " not in worker("--quiet").output
    lines = worker("--log-format", "json").output.splitlines()
    assert {json.loads(line)["level"] for line in lines} == {"INFO"}


def test_flags_have_their_variables(worker: Callable[..., WorkerProcess]) -> None:
    running = worker(env={"ENVQ_WORKERS": "2", "ENVQ_QUEUES": "a b", "ENVQ_NAME": "blue"}, executors=2)
    assert len(running.executors()) == 2
    assert all(name.startswith("blue.") for name in running.executors())
    assert "queues: a, b" in running.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_still_starts_is_a_clean_end(number: int, start_process: Callable[..., Process]) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    process = start_process([*COMMAND, "worker", "--wait-for-server", "60", "-u", url])
    eventually(lambda: "waiting for Redis" in process.output)
    os.kill(process.pid, number)
    assert process.wait() == 0
    assert "Traceback" not in process.output


def test_sigterm_ends_a_running_worker_with_0(worker: Callable[..., WorkerProcess]) -> None:
    assert worker().stop() == 0


def test_burst_ends_by_itself(redis_url: str, tmp_path: Path) -> None:
    assert envq("worker", "--burst", url=redis_url, cwd=tmp_path).returncode == 0


def test_it_waits_for_a_server_that_comes_later(
    start_process: Callable[..., Process], server_binary: Path, tmp_path: Path
) -> None:
    port = free_port()
    process = start_process(
        [*COMMAND, "worker", "--burst", "--wait-for-server", "60", "-u", f"redis://127.0.0.1:{port}/0"]
    )
    eventually(lambda: "waiting for Redis" in process.output)
    start_process([server_binary, "--port", str(port), "--save", "", "--dir", tmp_path])
    assert process.wait(20) == 0


def test_it_waits_also_where_the_connection_is_lost_once_the_server_has_answered(
    start_process: Callable[..., Process], own_server: Callable[..., Server]
) -> None:
    proxy = CuttingProxy(own_server().port)
    proxy.cut(b":declarations", CUT_BEFORE, times=1)
    process = start_process([*COMMAND, "worker", "--burst", "--wait-for-server", "60", "-u", proxy.url])
    assert process.wait(20) == 0
    assert "waiting for Redis" in process.output
    proxy.close()


def test_modules_come_from_the_working_folder_and_from_path(
    worker: Callable[..., WorkerProcess], redis_url: str, tmp_path: Path
) -> None:
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "beside_module.py").write_text("def make():\n    return 'made'\n")
    worker("-P", str(tmp_path / "beside"))
    assert envq("env", "declare", "thing", "beside_module:make", url=redis_url).returncode == 0
    done = envq("env", "wait", "thing", "--timeout", "20", url=redis_url)
    assert done.returncode == 0, done.stderr


def test_a_namespace_keeps_its_executors_to_itself(
    worker: Callable[..., WorkerProcess], redis_url: str, namespace: str
) -> None:
    worker("--namespace", namespace)
    inside = json.loads(envq("info", "--json", "--namespace", namespace, url=redis_url).stdout)
    outside = json.loads(envq("info", "--json", url=redis_url).stdout)
    assert len(inside["executors"]) == 1
    assert outside["executors"] == []
    with redis.Redis.from_url(redis_url) as client:
        assert client.exists(f"envq:{namespace}:executors")
