"""RQ's sharp edges around processes: kills in the wrong moment, outages, names, secrets, pools ."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
import rq
from support import claiming
from support.deployment import executor_pid
from support.processes import Process
from support.servers import Server
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq import ConfigurationError
from envq.driver import client as client_module
from envq.driver.client import Client
from envq.store.keys import Keys


def count_runs() -> Callable[[], int]:
    def job() -> int:
        from rq import get_current_job

        job: Any = get_current_job()
        return int(job.connection.incr(f"runs:{job.id}"))

    return job


def test_a_worker_killed_right_after_a_claim_on_two_queues_loses_nothing(
    client: Client, worker: Callable[..., WorkerProcess]
) -> None:
    running = worker("high", "low")
    [name] = running.executors()
    os.kill(executor_pid(client.connection, name), signal.SIGSTOP)
    jobs = [envq.Queue(queue).enqueue(count_runs()) for queue in ("high", "low")]
    # As the executor's own blocking move does it: in its claims, and it knows nothing of it yet.
    claims = client.keys.claims(name)

    def claimed() -> bool:
        for queue in ("high", "low"):
            client.connection.lmove(f"rq:queue:{queue}", claims, "LEFT", "RIGHT")
        return client.connection.llen(claims) == 2

    eventually(claimed)
    os.kill(executor_pid(client.connection, name), signal.SIGKILL)
    assert envq.get(jobs, timeout=10) == [1, 1]
    assert not any(client.connection.hexists(job.key, "envq_crashes") for job in jobs)


def test_a_stop_right_after_a_claim_loses_nothing(client: Client, worker: Callable[..., WorkerProcess]) -> None:
    running = worker("high", "low")
    [name] = running.executors()
    pid = executor_pid(client.connection, name)
    os.kill(pid, signal.SIGSTOP)
    jobs = [envq.Queue(queue).enqueue(count_runs()) for queue in ("high", "low")]
    running.send(signal.SIGTERM)
    eventually(lambda: "received SIGTERM" in running.output)
    os.kill(pid, signal.SIGCONT)
    assert running.wait() == 0
    worker("high", "low")
    assert envq.get(jobs, timeout=10) == [1, 1]


def test_a_worker_outlives_an_outage_of_redis_and_goes_on(
    own_server: Callable[..., Server], worker: Callable[..., WorkerProcess]
) -> None:
    server = own_server("--appendonly", "yes")
    before = client_module.swap_default(None)
    try:
        envq.connect(server.url())
        running = worker(url=server.url())
        before_outage = envq.get(envq.Queue().enqueue(os.getpid), timeout=10)
        server.stop()
        eventually(lambda: "cannot reach Redis" in running.output or "does not answer" in running.output)
        server.start()
        assert envq.get(envq.Queue().enqueue(os.getpid), timeout=15) == before_outage, "variables are built once"
        assert running.running
        assert running.stop() == 0
    finally:
        client_module.swap_default(before)


def test_a_result_is_stored_although_redis_was_away_when_the_job_ended(
    own_server: Callable[..., Server], worker: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    server = own_server("--appendonly", "yes")
    before = client_module.swap_default(None)

    def waits_for_file(started: str, gate: str) -> int:
        import pathlib
        import threading

        with pathlib.Path(started).open("a") as file:
            file.write("x")
        while not pathlib.Path(gate).exists():
            threading.Event().wait(0.01)
        return len(pathlib.Path(started).read_text())

    try:
        envq.connect(server.url())
        running = worker(url=server.url())
        started, gate = tmp_path / "started", tmp_path / "gate"
        job = envq.Queue().enqueue(waits_for_file, str(started), str(gate))
        eventually(started.exists)
        server.stop()
        gate.touch()
        eventually(lambda: "is not stored yet" in running.output)
        server.start()
        assert envq.get(job, timeout=15) == 1
        assert started.read_text() == "x", "it ran once"
    finally:
        client_module.swap_default(before)


def test_an_executor_that_breaks_is_replaced_and_the_worker_never_ends_by_itself(
    client: Client, worker: Callable[..., WorkerProcess]
) -> None:
    running = worker()
    [name] = running.executors()
    os.kill(executor_pid(client.connection, name), signal.SIGSEGV)
    eventually(lambda: running.executors() not in ([], [name]))
    assert envq.get(envq.Queue().enqueue(lambda: "fine"), timeout=10) == "fine"
    assert running.running


def test_a_fixed_name_can_start_again_right_after_a_crash(client: Client, worker: Callable[..., WorkerProcess]) -> None:
    worker("--name", "mine").kill()
    again = worker("--name", "mine")
    assert all(name.startswith("mine.") for name in again.executors())
    assert envq.get(envq.Queue().enqueue(lambda: "fine"), timeout=10) == "fine"


def test_no_password_is_in_the_command_line_of_any_process(
    own_server: Callable[..., Server], start_process: Callable[..., Process]
) -> None:
    server = own_server()
    with server.client() as admin:
        admin.config_set("requirepass", "s3cret-word")
        admin.execute_command("AUTH", "s3cret-word")
        url = f"redis://:s3cret-word@127.0.0.1:{server.port}/0"
        from support.cli import COMMAND

        running = start_process([*COMMAND, "worker", "-w", "2"], env={"ENVQ_URL": url})
        eventually(lambda: admin.scard("rq:workers") == 2, timeout=20)
        pids = [running.pid, *running.descendants()]
        assert len(pids) >= 4, "supervisor, two executors, scheduler"
        for pid in pids:
            assert b"s3cret-word" not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert "s3cret-word" not in running.output


def test_a_connection_that_decodes_replies_is_refused_everywhere(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url, decode_responses=True) as decoding:
        for use in (envq.connect, lambda c: envq.Queue(connection=c)):
            with pytest.raises(ConfigurationError, match="decode_responses"):
                use(decoding)
    with pytest.raises(ConfigurationError, match="decode_responses"):
        envq.connect(f"{redis_url}?decode_responses=True")


def test_the_pool_a_driver_was_given_is_used_as_it_is(redis_url: str) -> None:
    before = client_module.swap_default(None)
    with redis.Redis.from_url(redis_url, socket_timeout=7, max_connections=9, client_name="theirs") as given:
        options = dict(given.connection_pool.connection_kwargs)
        client = envq.connect(given)
        assert client.connection is given
        job = envq.Queue().enqueue("operator.add", 1, 2)
        with pytest.raises(envq.GetTimeout):
            envq.get(job, timeout=0.1)
        assert given.connection_pool.connection_kwargs == options
        assert given.client_getname() == "theirs"
    client_module.swap_default(before)


def test_a_ghost_changes_nothing(client: Client, worker: Callable[..., WorkerProcess]) -> None:
    """Frozen in a job, taken for dead, thawed after the job was run by another."""

    def frozen_first(name: str) -> str:
        import os
        import signal

        from rq import get_current_job

        job: Any = get_current_job()
        runs = int(job.connection.incr(f"runs:{job.id}"))
        if runs == 1:
            job.connection.set(f"pid:{job.id}", os.getpid())
            os.kill(os.getpid(), signal.SIGSTOP)
        return f"{name} {runs}"

    ghost = worker()
    [name] = ghost.executors()
    job = envq.Queue().enqueue(frozen_first, "run")
    pid = int(eventually(lambda: client.connection.get(f"pid:{job.id}") or False))
    eventually(lambda: Path(f"/proc/{pid}/stat").read_text().split()[2] == "T")
    ghost.send(signal.SIGSTOP)
    give_away(client, name)
    worker()
    assert envq.get(job, timeout=10) == "run 2"
    record = client.connection.hgetall(job.key)
    os.kill(pid, signal.SIGCONT)
    eventually(lambda: "was given to another executor" in ghost.output)
    ghost.send(signal.SIGCONT)
    assert client.connection.hgetall(job.key) == record
    assert [result.return_value for result in job.results()] == ["run 2"]
    assert envq.get(envq.Queue().enqueue(lambda: "fine"), timeout=10) == "fine"


def give_away(client: Client, executor: str) -> None:
    """What another worker's reaper does with the claims of an executor that has been silent too long."""
    from envq.store.scripts import release

    keys = Keys("default", client.keys.database)
    assert release(client.connection, keys, executor, running="?", why="crash", dead=True)
    assert not claiming.claim(client.connection, keys, executor, []).jobs


@pytest.mark.chaos
@pytest.mark.timeout(120)
def test_a_worker_frozen_for_longer_than_its_lease_is_such_a_ghost(
    client: Client, worker: Callable[..., WorkerProcess]
) -> None:
    def slow() -> int:
        import threading

        from rq import get_current_job

        job: Any = get_current_job()
        runs = int(job.connection.incr(f"runs:{job.id}"))
        if runs == 1:
            threading.Event().wait(5)
        return runs

    ghost = worker("--lease", "2")
    job = envq.Queue().enqueue(slow)
    eventually(lambda: client.connection.get(f"runs:{job.id}") == b"1")
    for pid in (ghost.pid, *ghost.descendants()):
        os.kill(pid, signal.SIGSTOP)
    worker("--lease", "2")
    assert envq.get(job, timeout=40) == 2
    record = client.connection.hgetall(job.key)
    for pid in (ghost.pid, *ghost.descendants()):
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: "was given to another executor" in ghost.output, timeout=15)
    assert client.connection.hgetall(job.key) == record
    assert [result.return_value for result in job.results()] == [2]
    assert rq.Queue(connection=client.connection).failed_job_registry.count == 0
