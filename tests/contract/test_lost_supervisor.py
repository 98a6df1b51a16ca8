"""A supervisor that is killed alone takes all with it, whatever that is busy with; another worker takes over."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from support.hanging import HANGS, hanging
from support.processes import Process
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq.driver.client import Client
from envq.environment import env

LEASE = ("--lease", "2")
METHODS = ("fork", "spawn", "forkserver")
WAYS = [("--start-method", method) for method in METHODS] + [("--isolate",)]


def first_hangs(hang: Callable[[], None]) -> Callable[[], int]:
    """A job that leaves a process behind and hangs the first time; then it returns how often it ran."""

    def run() -> int:
        import subprocess

        from rq import get_current_job

        job: Any = get_current_job()
        runs = int(job.connection.incr("runs"))
        if runs == 1:
            subprocess.Popen(["sleep", "1000"])
            job.connection.set("begun", 1)
            hang()
        return runs

    return run


def kill_alone(worker: Process) -> None:
    """All that is left of it goes by itself."""
    os.kill(worker.pid, signal.SIGKILL)
    eventually(lambda: worker.descendants() == [])


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
@pytest.mark.parametrize("how", HANGS)
def test_in_a_job(how: str, way: tuple[str, ...], client: Client, worker: Callable[..., WorkerProcess]) -> None:
    lost = worker(*way, *LEASE)
    job = envq.Queue().enqueue(first_hangs(hanging(how)))
    eventually(lambda: client.connection.exists("begun") == 1)
    kill_alone(lost)
    worker(*LEASE)
    assert envq.get(job, timeout=20) == 2


@pytest.mark.parametrize("method", METHODS)
def test_in_a_build(method: str, client: Client, worker: Callable[..., WorkerProcess]) -> None:
    def browser() -> str:
        import ctypes
        import subprocess

        from envq.driver.client import default_client

        connection = default_client().connection
        if connection.incr("builds") == 1:
            subprocess.Popen(["sleep", "1000"])
            connection.set("begun", 1)
            ctypes.PyDLL(None).sleep(60)
        return "built"

    lost = worker("--start-method", method, *LEASE)
    env.browser = envq.EnvironmentVariable(browser, driver="never")
    eventually(lambda: client.connection.exists("begun") == 1)
    kill_alone(lost)
    worker(*LEASE)
    assert envq.get(envq.Queue().enqueue(lambda: envq.env.browser), timeout=20) == "built"
    eventually(lambda: all(f".{lost.pid}." not in view.info.name for view in client.executors.all()))
