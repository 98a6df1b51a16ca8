"""A process may die in any way, at any moment: what had finished is stored, what ran is told why, the rest goes on."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.memory_limit import memory_limit
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq.driver.client import Client
from envq.environment import env
from envq.store.events import read

MIB = 1024 * 1024
LARGE_MIB = 150

WAYS = {
    "kill": ("os.kill(os.getpid(), signal.SIGKILL)", r"was killed by SIGKILL \(not by its supervisor"),
    "segfault": ("ctypes.string_at(0)", "was killed by SIGSEGV"),
    "exit": ("os._exit(3)", "exited with code 3"),
    "abort": ("os.abort()", "was killed by SIGABRT"),
}


@pytest.fixture
def die(request: pytest.FixtureRequest) -> Callable[[], None]:
    """Ends its process in one of ``WAYS``."""
    statement = WAYS[request.param][0]

    def die() -> None:
        import ctypes
        import os
        import signal

        exec(statement, {"ctypes": ctypes, "os": os, "signal": signal})

    return die


@pytest.fixture
def running(worker: Callable[..., WorkerProcess]) -> WorkerProcess:
    return worker()


@pytest.fixture
def count(tmp_path: Path) -> Callable[[str], int]:
    """One more of something, on whatever worker; how many there are now."""

    def count(what: str) -> int:
        with Path(tmp_path / what).open("ab") as file:
            file.write(b".")
            return file.tell()

    return count


def died(client: Client) -> list[str]:
    """What events say of executors that died."""
    entries: Any = client.connection.xrange(client.keys.events)
    events = [each for _, fields in entries for each in read(fields[b"event"])]
    return [each.detail for each in events if each.kind == "executor.died"]


@pytest.mark.parametrize(("die", "says"), [(way, says) for way, (_, says) in WAYS.items()], indirect=["die"], ids=WAYS)
def test_the_error_says_who_died_how_in_what_and_with_how_much_memory(
    running: WorkerProcess, client: Client, die: Callable[[], None], says: str
) -> None:
    env.gear = envq.EnvironmentVariable(dict, driver="never")
    env.wheel = envq.EnvironmentVariable(dict, driver="never")
    envq.wait_ready("gear", timeout=20)

    def job(mib: int) -> None:
        assert envq.env.gear == {}
        grown = bytearray(mib * 1024 * 1024)
        grown[::4096] = b"x" * len(grown[::4096])
        die()

    lost = envq.task(job).options(on_crash="fail").enqueue(LARGE_MIB)
    with pytest.raises(envq.WorkerLost) as raised:
        envq.get(lost, timeout=5)
    result = lost.latest_result()
    assert result is not None
    for text in (str(raised.value), str(result.exc_string), died(client)[0], running.output):
        assert re.search(rf"executor \S+ \(pid \d+\) {says}", text), text
        assert f"while it ran job {lost.id} with gear in use" in text
        peak = re.search(r"peak memory (\d+) MiB", text)
        assert peak, text
        assert int(peak[1]) >= LARGE_MIB
    assert envq.get(envq.Queue().enqueue(lambda: "fine"), timeout=10) == "fine"


def test_a_job_for_which_the_system_has_no_memory_left_fails_with_that_hint(
    running: WorkerProcess, client: Client
) -> None:
    def greedy(gate: str) -> None:
        from rq import get_current_job

        job: Any = get_current_job()
        job.connection.set(f"{gate}:pid", os.getpid())
        job.connection.blpop(gate, timeout=30)
        grown = bytearray(300 * 1024 * 1024)
        grown[::4096] = b"x" * len(grown[::4096])

    with memory_limit(100 * MIB) as put_under:
        lost = envq.task(greedy).options(on_crash="fail").enqueue("gate")
        pid = eventually(lambda: client.connection.get("gate:pid") or False)
        put_under(int(pid))
        client.connection.rpush("gate", "open")
        with pytest.raises(envq.WorkerLost, match=r"SIGKILL.*perhaps the system ran out of memory.*peak memory"):
            envq.get(lost, timeout=10)
        assert envq.get(envq.Queue().enqueue(lambda: "fine"), timeout=10) == "fine"
    assert running.running


def test_memory_that_a_limit_refuses_fails_the_job_and_not_its_process(running: WorkerProcess, client: Client) -> None:
    def greedy() -> None:
        import resource

        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (1024 * 1024 * 1024, before[1]))
        try:
            bytearray(4 * 1024 * 1024 * 1024)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)

    with pytest.raises(envq.JobFailed, match="MemoryError"):
        envq.get(envq.Queue().enqueue(greedy), timeout=10)
    assert died(client) == []


def test_a_module_that_kills_whoever_imports_it_costs_only_its_own_job(
    worker: Callable[..., WorkerProcess], client: Client, tmp_path: Path
) -> None:
    (tmp_path / "deadly.py").write_text("import os\n\nos.kill(os.getpid(), 9)\n")
    worker("--path", str(tmp_path))
    lost = envq.Queue().enqueue("deadly.function")
    behind = [envq.Queue().enqueue("time.time") for _ in range(3)]
    with pytest.raises(envq.WorkerLost, match=f"while it ran job {lost.id}"):
        envq.get(lost, timeout=20)
    envq.get(behind, timeout=10)
    assert not any(client.connection.hexists(job.key, "envq_crashes") for job in behind)


@pytest.mark.usefixtures("running")
def test_a_result_that_kills_whoever_pickles_it_costs_only_its_own_job(client: Client) -> None:
    def give() -> object:
        class Deadly:
            def __reduce__(self) -> Any:
                os.kill(os.getpid(), signal.SIGKILL)

        return Deadly()

    lost = envq.task(give).options(on_crash="fail").enqueue()
    with pytest.raises(envq.WorkerLost, match=lost.id):
        envq.get(lost, timeout=10)
    assert envq.get(envq.Queue().enqueue(lambda: "fine"), timeout=10) == "fine"


@pytest.mark.usefixtures("running")
def test_arguments_that_kill_whoever_unpickles_them_cost_only_their_own_job(client: Client) -> None:
    lost = envq.task(lambda _: None).options(on_crash="fail").enqueue(Deadly())
    with pytest.raises(envq.WorkerLost, match=lost.id):
        envq.get(lost, timeout=10)
    assert envq.get(envq.Queue().enqueue(lambda: "fine"), timeout=10) == "fine"


class Deadly:
    def __reduce__(self) -> tuple[Callable[[int], object], tuple[int]]:
        return os._exit, (9,)


@pytest.mark.usefixtures("running")
def test_a_reset_that_kills_its_process_runs_no_job_again(client: Client, count: Callable[[str], int]) -> None:
    def reset(value: dict[str, int]) -> dict[str, int]:
        if value and count("deaths") == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        value.clear()
        return value

    env.gear = envq.EnvironmentVariable(dict, reset, driver="never")
    envq.wait_ready("gear", timeout=20)

    def use() -> int:
        envq.env.gear["used"] = 1
        return count("runs")

    jobs = [envq.task(use).options(on_crash=on_crash).enqueue() for on_crash in ("fail", "requeue", "fail")]
    assert envq.get(jobs, timeout=20) == [1, 2, 3]
    eventually(lambda: len(died(client)) == 1)
    assert "while it reset" in died(client)[0]


@pytest.mark.usefixtures("running")
def test_what_had_finished_is_stored_and_what_waited_is_not_counted(
    client: Client, count: Callable[[str], int], tmp_path: Path
) -> None:
    envq.get(envq.task(lambda: None).starmap([()] * 400), timeout=30)  # whole batches are claimed from now on

    def act(number: int) -> int:
        runs = count(str(number))
        if number == 20 and runs == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return runs

    jobs = envq.task(act).starmap([(number,) for number in range(40)])
    assert envq.get(jobs, timeout=20) == [2 if number == 20 else 1 for number in range(40)]
    assert [(tmp_path / str(number)).stat().st_size for number in range(40)] == [
        2 if number == 20 else 1 for number in range(40)
    ]
    assert not any(client.connection.hexists(job.key, "envq_crashes") for job in jobs)


def test_an_executor_that_is_killed_while_it_starts_is_replaced(running: WorkerProcess, client: Client) -> None:
    """Again and again at whatever moment it has come to."""
    for _ in range(5):
        for pid in running.descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        eventually(lambda: running.descendants() != [])
    assert envq.get(envq.Queue().enqueue(lambda: "fine"), timeout=30) == "fine"
    assert running.running
