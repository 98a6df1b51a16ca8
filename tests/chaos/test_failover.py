"""Failover under Sentinel: whoever is connected finds the new primary, and what was replicated is not lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from operator import neg
from pathlib import Path

import pytest
import redis
from support.processes import Process, clean_environment
from support.sentinels import NAME, Failover
from support.waiting import eventually

import envq
from envq.driver.client import driver_scope, swap_default
from envq.store.connection import worker_client
from envq.store.sentinel import NoPrimary

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(180)]

BACKLOG = 400


@pytest.fixture
def failover(server_binary: Path) -> Iterator[Failover]:
    made = Failover(server_binary)
    before = swap_default(None)
    driver_scope.close()
    yield made
    driver_scope.close()
    swap_default(before)
    made.remove()


@pytest.fixture
def executors_of(failover: Failover) -> Callable[[Process], list[str]]:
    def executors_of(worker: Process) -> list[str]:
        with worker_client(failover.url) as client:
            keys = [key.decode() for key in client.smembers("rq:workers")]
        return [key for key in keys if f".{worker.pid}." in key]

    return executors_of


negative = envq.task(neg)


def start_worker(
    start_process: Callable[..., Process], url: str, executors_of: Callable[[Process], list[str]]
) -> Process:
    worker = start_process([sys.executable, "-m", "envq", "worker", "-w", "2"], env={"ENVQ_URL": url})
    eventually(lambda: len(executors_of(worker)) == 2, timeout=30)
    return worker


def test_workers_and_drivers_go_on_with_the_new_primary_and_nothing_replicated_is_lost(
    failover: Failover, start_process: Callable[..., Process], executors_of: Callable[[Process], list[str]]
) -> None:
    client = envq.connect(failover.url, retry_for=60)
    envq.env.base = envq.EnvironmentVariable(lambda: 7, driver="never")
    worker = start_worker(start_process, failover.url, executors_of)
    before = executors_of(worker)

    def with_base(x: int) -> int:
        return envq.env.base + x

    read = envq.task(with_base)
    assert envq.get(read.enqueue(1), timeout=20) == 8
    waiting = negative.options(queue="later").map(range(BACKLOG))
    assert client.connection.wait(1, 10_000) == 1
    failover.fail_over()

    # An idle worker, the driver and a job that was put off: all on the new primary.
    assert envq.get(read.enqueue(2), timeout=60) == 9
    with pytest.raises(envq.JobFailed, match="TypeError"):
        envq.get(negative.enqueue("text"), timeout=30)
    assert client.connection.llen("rq:queue:later") == BACKLOG
    assert envq.get(negative.enqueue_in(1, 3), timeout=60) == -3, "the scheduler too"
    helper = start_process(
        [sys.executable, "-m", "envq", "worker", "later", "--no-scheduler"], env={"ENVQ_URL": failover.url}
    )
    assert envq.get(waiting, timeout=60) == [-x for x in range(BACKLOG)]
    assert helper.running
    assert worker.running
    assert executors_of(worker) == before, "no executor had to be started again"


def test_what_runs_while_the_primary_dies_is_stored_on_the_new_one(
    failover: Failover,
    start_process: Callable[..., Process],
    executors_of: Callable[[Process], list[str]],
    tmp_path: Path,
) -> None:
    client = envq.connect(failover.url, retry_for=60)
    start_worker(start_process, failover.url, executors_of)
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"
    os.mkfifo(go_on)

    def wait_at_the_pipe(number: int) -> int:
        from pathlib import Path

        Path(f"{begun}-{number}").touch()
        Path(go_on).read_bytes()
        return number

    jobs = envq.task(wait_at_the_pipe).map(range(2))
    eventually(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
    assert client.connection.wait(1, 10_000) == 1  # the claims are there as well
    failover.fail_over()
    go_on.write_bytes(b"go on")
    assert envq.get(jobs, timeout=60) == [0, 1]
    assert [len(job.results()) for job in jobs] == [1, 1]


def test_a_primary_that_became_a_replica_is_left(failover: Failover) -> None:
    """It answers and refuses to write: this counts as a lost connection."""
    client = envq.connect(failover.url, retry_for=60)
    negative.enqueue(1)
    with redis.Redis(port=failover.ports[0]) as sentinel:
        sentinel.execute_command("SENTINEL", "FAILOVER", NAME)
    eventually(lambda: failover.address()[1] == failover.replica.port, timeout=60)
    with failover.primary.client() as old:
        eventually(lambda: old.info("replication")["role"] == "slave", timeout=60)
    negative.enqueue(2)
    with failover.replica.client() as new:
        assert new.llen("rq:queue:default") == 2
    assert client.connection.llen("rq:queue:default") == 2


def envq_info(url: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "envq", "info"]
    environment = clean_environment({"ENVQ_URL": url})
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_what_is_wrong_with_a_sentinel_url_is_said_in_one_sentence(failover: Failover) -> None:
    assert envq_info(failover.url).returncode == 0
    wrong = envq_info(f"redis+sentinel://{failover.hosts}/0?master=mymastre")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (3, 1)
    assert "know no primary 'mymastre' (known: mymaster)" in wrong.stderr
    nameless = envq_info(f"redis+sentinel://{failover.hosts}/0")
    assert (nameless.returncode, nameless.stderr.count("\n")) == (4, 1)
    assert "?master=NAME" in nameless.stderr
    failover.stop_sentinels()
    away = envq_info(failover.url)
    assert (away.returncode, away.stderr.count("\n")) == (3, 1)
    assert f"no sentinel answers at 127.0.0.1:{failover.ports[0]}" in away.stderr


def test_sentinels_may_have_a_password_of_their_own(server_binary: Path) -> None:
    made = Failover(server_binary, password="open-sesame")
    try:
        with pytest.raises(NoPrimary, match="no sentinel answers"), worker_client(made.url) as client:
            client.ping()
        with worker_client(f"{made.url}&sentinel_password=open-sesame") as client:
            assert client.ping()
    finally:
        made.remove()
