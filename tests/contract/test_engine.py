"""Jobs that are claimed together: each as if it were alone, whatever the others do and whatever is lost."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.acting import TINY, WAIT_S, Act, acting, assert_nothing_is_left, enqueue, grow
from support.gate import Gate
from support.proxy import CUT_AFTER, CUTS, CuttingProxy
from support.servers import Server
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq.driver.client import Client
from envq.store.exchange import Success
from envq.store.scripts import digest
from envq.workers.supervision.settlement import Settlement, Settlements
from envq.workers.supervision.verdict import Verdict

Worker = Callable[..., WorkerProcess]
FINISH, CLAIM = digest("finish").encode(), digest("claim").encode()


@pytest.fixture
def gate(redis_url: str) -> Gate:
    return Gate(redis_url)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """What has begun, a line "kind number" each, but for tiny jobs."""
    path = tmp_path / "notes"
    path.touch()
    return path


@pytest.fixture
def act(gate: Gate, notes: Path) -> Act:
    return acting(notes, gate.wait)


@pytest.fixture
def proxy(server: Server) -> Iterator[CuttingProxy]:
    made = CuttingProxy(server.port)
    yield made
    made.close()


def through(proxy: CuttingProxy, url: str) -> str:
    return f"redis://127.0.0.1:{proxy.port}/{url.rpartition('/')[2]}"


def declare_value(wait: Callable[[], None], where: str) -> None:
    def build() -> dict[str, int]:
        if where == "build":
            wait()
        return {"owner": 7}

    def reset(value: dict[str, int]) -> dict[str, int]:
        if where == "reset":
            wait()
        return value

    envq.env.value = envq.EnvironmentVariable(build, reset, build="lazy", driver="never")


@pytest.mark.parametrize("where", ["job", "build", "reset"])
def test_what_was_claimed_together_with_something_long_is_stored_before_that_ends(
    client: Client, worker: Worker, act: Act, gate: Gate, where: str
) -> None:
    declare_value(gate.wait, where)
    worker("-w", "2", executors=2)
    grow(act, 2)
    kind = "wait" if where == "job" else "read"
    calls = [("tiny", number) for number in range(100)]
    jobs = enqueue(act, *calls[:3], (kind, 7), *calls[3:])
    long = jobs.pop(3)
    assert envq.get(jobs, timeout=WAIT_S) == [*range(100)]
    if where == "reset":
        assert envq.get(long, timeout=WAIT_S) == 7
    else:
        assert long.get_status() == "started"
    gate.open()
    assert envq.get(long, timeout=WAIT_S) == 7
    assert_nothing_is_left(client)


def test_only_the_job_that_killed_its_process_runs_again(client: Client, worker: Worker, act: Act, notes: Path) -> None:
    worker()
    grow(act)
    calls = [("note", number) for number in range(20)]
    jobs = enqueue(act, *calls[:10], ("die", 20), *calls[10:])
    assert envq.get(jobs, timeout=WAIT_S) == [*range(10), 20, *range(10, 20)]
    assert sorted(notes.read_text().split("\n")) == sorted(
        ["", "die 20", "die 20", *(f"note {number}" for number in range(20))]
    )
    assert all(len(job.results()) == 1 for job in jobs)
    assert_nothing_is_left(client)


@pytest.mark.parametrize("script", [FINISH, CLAIM], ids=["finish", "claim"])
@pytest.mark.parametrize("where", CUTS)
def test_a_connection_that_is_cut_loses_nothing_of_a_batch(
    client: Client, worker: Worker, act: Act, proxy: CuttingProxy, redis_url: str, where: str, script: bytes
) -> None:
    """The queue is empty by then: nothing else wakes the executor up."""
    worker(url=through(proxy, redis_url))
    grow(act)
    proxy.cut(script, where, times=2)
    jobs = enqueue(act, *[("spin", 3)] * 30, ("raise", 1), *[("spin", 4)] * 30)
    results = envq.get(jobs, timeout=WAIT_S, return_exceptions=True)
    assert results[:30] + results[31:] == [3] * 30 + [4] * 30
    assert isinstance(results[30], envq.JobFailed)
    assert proxy.left == 0
    assert all(len(job.results()) == 1 for job in jobs)
    assert_nothing_is_left(client)


@pytest.mark.parametrize("status", ["failed", "finished"])
def test_dependents_run_although_the_process_died_when_it_had_just_stored_their_parent(
    client: Client, worker: Worker, act: Act, status: str
) -> None:
    (parent,) = enqueue(act, ("tiny", 1))
    options: Any = {"depends_on": envq.Dependency(parent, allow_failure=True)}
    child = envq.task(act).options(**options).enqueue("tiny", 2)
    client.connection.delete("rq:queue:default")
    client.connection.hset(parent.key, "status", status)
    settlements = Settlements(client.keys)
    # It had been noted as well, where it was stored by itself because it has dependents.
    told = '"queue":"default","func":"act"'
    end = Success(parent.id, "e1", "default", told, 1.0, 2.0, 500, b"", False, False).packed()
    settlements.add(Settlement("host.1.1.abc", Verdict(parent.id, "crash", "killed"), "killed", ends=(end,)))
    assert settlements.work_off(client.connection)
    worker()
    assert envq.get(child, timeout=WAIT_S) == 2
    assert parent.get_status() == status
    assert not client.connection.hexists(parent.key, "envq_settle")
    assert_nothing_is_left(client)


def test_a_worker_ends_after_its_jobs_also_where_the_last_round_trip_failed(
    client: Client, worker: Worker, act: Act, proxy: CuttingProxy, redis_url: str
) -> None:
    running = worker("--max-jobs", str(TINY + 3), url=through(proxy, redis_url))
    grow(act)
    proxy.cut(FINISH, CUT_AFTER, times=1)
    jobs = enqueue(act, ("tiny", 1), ("tiny", 2), ("spin", 30), ("tiny", 4))
    assert running.wait(WAIT_S) == 0
    assert envq.get(jobs[:3], timeout=WAIT_S) == [1, 2, 30]
    assert jobs[3].get_status() == "queued"
    assert_nothing_is_left(client)


def test_a_stop_is_heard_between_the_jobs_of_a_batch(client: Client, worker: Worker, act: Act, notes: Path) -> None:
    running = worker("--no-scheduler")
    grow(act)
    jobs = enqueue(act, *[("spin", 80)] * 20)
    eventually(lambda: notes.read_text() != "")
    running.send(signal.SIGTERM)
    assert running.wait(WAIT_S) == 0
    ended = notes.read_text().count("spin")
    statuses = [job.get_status() for job in jobs]
    assert statuses == ["finished"] * ended + ["queued"] * (20 - ended)
    assert ended < 20
    assert_nothing_is_left(client)


def test_results_do_not_wait_for_the_teardown_of_their_executor(
    client: Client, worker: Worker, act: Act, gate: Gate
) -> None:
    wait = gate.wait

    def teardown(_: Any) -> None:
        wait()

    envq.env.value = envq.EnvironmentVariable(
        lambda: {"owner": 7}, lambda value: value, teardown=teardown, driver="never"
    )
    running = worker("--max-jobs", "4")
    jobs = enqueue(act, *[("tiny", number) for number in range(8)])
    assert envq.get(jobs[:4], timeout=WAIT_S) == [0, 1, 2, 3]
    eventually(lambda: all(job.get_status() == "queued" for job in jobs[4:]))
    gate.open()
    assert running.wait(WAIT_S) == 0
    assert_nothing_is_left(client)
