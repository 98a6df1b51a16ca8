"""With --isolate a job runs in a fork of its executor: it changes nothing for others, and dies alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rq.command import send_stop_job_command
from support.deployment import executor_pid
from support.diary import Diary
from support.gate import Gate
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq.driver.client import Client

METHODS = ["fork", "spawn", "forkserver"]


@pytest.fixture(params=METHODS)
def isolating(request: pytest.FixtureRequest, client: Client, worker: Callable[..., WorkerProcess]) -> WorkerProcess:
    return worker("--isolate", "--start-method", request.param, "--kill-grace", "1")


@pytest.fixture
def isolated(client: Client, worker: Callable[..., WorkerProcess]) -> WorkerProcess:
    return worker("--isolate", "--kill-grace", "1")


@pytest.fixture
def diary(client: Client) -> Diary:
    return Diary(client.settings.url)


@pytest.fixture
def listing(client: Client, diary: Diary) -> Iterator[Diary]:
    """A list as a variable, that tells of its builds, resets and ends."""
    write = diary.write

    def make() -> Any:
        write("built")
        yield ["fresh"]
        write("torn down")

    def put_back(value: list[str]) -> list[str]:
        write("reset")
        return value

    envq.env.listing = envq.EnvironmentVariable(make, put_back, driver="never")
    yield diary


def only_executor(client: Client, worker: WorkerProcess) -> int:
    (name,) = worker.executors()
    return executor_pid(client.connection, name)


def test_every_job_sees_the_value_as_it_was_built_though_nothing_is_reset(
    client: Client, listing: Diary, isolating: WorkerProcess
) -> None:
    def grow() -> tuple[list[str], int, int]:
        import os

        envq.env.listing.append("changed")
        return list(envq.env.listing), os.getpid(), os.getppid()

    seen = envq.get([envq.Queue().enqueue(grow) for _ in range(5)], timeout=30)
    executor = only_executor(client, isolating)
    assert [value for value, _, _ in seen] == [["fresh", "changed"]] * 5
    assert len({pid for _, pid, _ in seen}) == 5
    assert {parent for _, _, parent in seen} == {executor}
    isolating.end()
    assert listing.entries == ["built", "torn down"]


@pytest.mark.parametrize("way", ["kill", "segfault", "exit"])
def test_a_job_whose_process_dies_is_counted_and_its_executor_stays(
    client: Client, listing: Diary, isolated: WorkerProcess, way: str
) -> None:
    write = listing.write

    def die(way: str) -> None:
        import ctypes
        import os
        import signal

        write("ran")
        len(envq.env.listing)
        if way == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif way == "segfault":
            ctypes.string_at(0)
        os._exit(7)

    envq.wait_ready("listing", timeout=20)
    executor = only_executor(client, isolated)
    job, behind = envq.Queue().enqueue(die, way), envq.Queue().enqueue(lambda: list(envq.env.listing))
    said = {"kill": "killed by SIGKILL", "segfault": "killed by SIGSEGV", "exit": "exited with code 7"}[way]
    with pytest.raises(envq.WorkerLost, match=rf"{said}.* with listing in use.*peak memory \d+ MiB"):
        envq.get(job, timeout=30)
    assert envq.get(behind, timeout=10) == ["fresh"]
    assert only_executor(client, isolated) == executor
    assert listing.count("built") == 1
    assert listing.count("ran") == 4
    assert client.connection.hget(job.key, "envq_crashes") is None
    assert envq.Queue().started_job_registry.get_job_ids(cleanup=False) == []


def test_a_job_that_must_not_run_twice_fails_at_its_first_death(
    client: Client, diary: Diary, isolated: WorkerProcess
) -> None:
    write = diary.write

    def die() -> None:
        import os
        import signal

        write("ran")
        os.kill(os.getpid(), signal.SIGKILL)

    job = envq.task(die, on_crash="fail").enqueue()
    with pytest.raises(envq.WorkerLost):
        envq.get(job, timeout=20)
    assert diary.entries == ["ran"]


def test_what_does_not_yield_at_its_limit_is_killed_and_the_executor_stays(
    client: Client, listing: Diary, isolated: WorkerProcess
) -> None:
    def hang() -> None:
        import threading

        while True:
            try:
                threading.Event().wait()
            except BaseException:  # noqa: BLE001 - that is what it is about
                continue

    envq.wait_ready("listing", timeout=20)
    executor = only_executor(client, isolated)
    with pytest.raises(envq.JobFailed, match=r"JobTimedOut.*did not end within its limit"):
        envq.get(envq.Queue().enqueue(hang, job_timeout=0.5), timeout=20)
    assert only_executor(client, isolated) == executor
    assert listing.count("built") == 1


@pytest.mark.parametrize("heeds", [True, False])
def test_a_stop_ends_the_job_and_not_its_executor(
    client: Client, diary: Diary, isolated: WorkerProcess, heeds: bool
) -> None:
    write = diary.write

    def run(heeds: bool) -> None:
        import signal
        import threading

        if not heeds:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        write("begun")
        try:
            threading.Event().wait()
        finally:
            write("broken off")

    job = envq.Queue().enqueue(run, heeds)
    eventually(lambda: diary.count("begun") == 1)
    executor = only_executor(client, isolated)
    send_stop_job_command(client.connection, job.id)
    with pytest.raises(envq.errors.JobStopped):
        envq.get(job, timeout=20)
    assert diary.count("broken off") == int(heeds)
    assert envq.get(envq.Queue().enqueue(lambda: 1), timeout=10) == 1
    assert only_executor(client, isolated) == executor


def test_what_a_job_started_does_not_outlive_it(client: Client, isolated: WorkerProcess) -> None:
    def start() -> int:
        import subprocess

        return subprocess.Popen(["sleep", "1000"]).pid

    pid = envq.get(envq.Queue().enqueue(start), timeout=20)
    eventually(lambda: not Path(f"/proc/{pid}").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes())


def test_a_copy_dies_with_its_executor_and_its_job_runs_again(client: Client, isolated: WorkerProcess) -> None:
    gate = Gate(client.settings.url)
    wait = gate.wait

    def run() -> int:
        import os

        from rq import get_current_job

        job: Any = get_current_job()
        job.connection.rpush(f"pids:{job.id}", os.getpid())
        wait()
        return os.getpid()

    job = envq.Queue().enqueue(run)
    pids = f"pids:{job.id}"
    eventually(lambda: client.connection.llen(pids) == 1)
    first = int(client.connection.lrange(pids, 0, 0)[0])
    os.kill(only_executor(client, isolated), 9)
    eventually(lambda: not Path(f"/proc/{first}").exists())
    eventually(lambda: client.connection.llen(pids) == 2)
    gate.open()
    gate.open()
    assert envq.get(job, timeout=20) != first


def test_what_a_job_changed_of_its_own_record_is_stored(client: Client, isolated: WorkerProcess) -> None:
    def change() -> str:
        from rq import get_current_job

        job: Any = get_current_job()
        job.description = "changed by itself"
        job.meta["at"] = "the end"
        job.save_meta()
        return "done"

    job = envq.Queue().enqueue(change)
    assert envq.get(job, timeout=20) == "done"
    again = envq.Job.fetch(job.id)
    assert (again.description, again.meta) == ("changed by itself", {"at": "the end"})


@pytest.mark.parametrize("way", ["executor killed", "cold stop"])
def test_what_a_job_started_dies_with_its_executor_too(
    client: Client, worker: Callable[..., WorkerProcess], way: str
) -> None:
    def start() -> None:
        import subprocess
        import threading

        from rq import get_current_job

        job: Any = get_current_job()
        if job.connection.incr("runs") == 1:
            job.connection.set("pid", subprocess.Popen(["sleep", "1000"]).pid)
            threading.Event().wait()

    isolated = worker("--isolate", "--grace", "0.1", "--kill-grace", "1")
    envq.Queue().enqueue(start)
    eventually(lambda: client.connection.exists("pid") == 1)
    if way == "cold stop":
        isolated.send(signal.SIGTERM)
        isolated.wait()
    else:
        os.kill(only_executor(client, isolated), signal.SIGKILL)
    left = Path(f"/proc/{int(client.connection.get('pid') or 0)}/cmdline")
    eventually(lambda: not left.exists() or not left.read_bytes())
