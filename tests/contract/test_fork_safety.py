"""Nothing is forked from a process that has threads, and nothing that is forked holds a socket of its parent."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.deployment import executor_pid
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq.driver.client import Client

# Behind it stands `python -m envq worker …`, which it becomes; the hook goes along into every fork.
TELL_OF_FORKS = """
import os, runpy, sys
def tell(event, arguments):
    if event == "os.fork":
        os.write(2, b"fork by %d with %d threads\\n" % (os.getpid(), len(os.listdir("/proc/self/task"))))
sys.addaudithook(tell)
sys.argv = sys.argv[3:]
runpy.run_module("envq", run_name="__main__", alter_sys=True)
"""
WARN = {"PYTHONWARNINGS": "always::DeprecationWarning"}  # Python 3.12 does, where a process with threads forks

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def forks(worker: WorkerProcess) -> list[tuple[int, int]]:
    """Who forked, and how many threads it had."""
    return [(int(pid), int(threads)) for pid, threads in re.findall(r"fork by (\d+) with (\d+)", worker.output)]


def sockets(pid: int) -> set[str]:
    found: set[str] = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(str(descriptor.readlink()))
        except FileNotFoundError:  # closed meanwhile
            continue
    return {each for each in found if each.startswith("socket:")}


@linux
def test_whoever_forks_has_one_thread(client: Client, worker: Callable[..., WorkerProcess]) -> None:
    told = worker("--isolate", "--start-method", "fork", through=[sys.executable, "-c", TELL_OF_FORKS], env=WARN)
    assert envq.get(envq.Queue().enqueue(lambda: 1), timeout=20) == 1
    [first] = told.executors()
    executor = executor_pid(client.connection, first)
    os.kill(executor, signal.SIGKILL)
    eventually(lambda: told.executors() not in ([], [first]))
    assert envq.get(envq.Queue().enqueue(lambda: 2), timeout=20) == 2
    seen = forks(told)
    # The scheduler, an executor and its successor; a job in the first executor and one in the second.
    assert len([pid for pid, _ in seen if pid == told.pid]) >= 3
    assert len({pid for pid, _ in seen}) == 3
    assert {threads for _, threads in seen} == {1}
    assert "is multi-threaded" not in told.output


@linux
def test_an_executor_holds_no_socket_of_its_supervisor_or_of_another(
    client: Client, worker: Callable[..., WorkerProcess]
) -> None:
    one = worker("-w", "2", "--start-method", "fork", executors=2)
    pids = [one.pid, *(executor_pid(client.connection, name) for name in one.executors())]
    assert envq.get([envq.Queue().enqueue(lambda: 1) for _ in range(4)], timeout=20) == [1] * 4
    held = [sockets(pid) for pid in pids]
    assert all(held)
    assert sum(map(len, held)) == len(set.union(*held))
