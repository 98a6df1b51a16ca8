"""A worker that is told to stop loses nothing, at whatever moment."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
import rq
from support import supervised
from support.processes import Process
from support.servers import Server
from support.waiting import eventually

from envq.store.keys import job, queue

Start = Callable[..., Process]

ON_TERMINAL = """
import os, pty, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may ignore it, as nohup does
other_end, terminal = pty.openpty()
os.set_inheritable(other_end, True)
os.dup2(terminal, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def jobs(redis_client: redis.Redis, namespace: str) -> rq.Queue:
    """The queue "default" of the test's namespace, as a stock client sees it."""
    return rq.Queue(f"{namespace}:default", connection=redis_client)


def test_running_job_is_finished_before_the_worker_stops(
    start_process: Start, redis_url: str, namespace: str, jobs: rq.Queue
) -> None:
    running = jobs.enqueue("time.sleep", 1)
    waiting = jobs.enqueue("time.sleep", 0)
    worker = start_process(supervised.command(redis_url, namespace))
    eventually(lambda: supervised.begun(worker, running))
    assert worker.stop() == 0
    assert running.get_status() == "finished"
    assert waiting.get_status() == "queued"


def test_second_signal_hands_the_running_job_back_uncounted(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis, jobs: rq.Queue
) -> None:
    running, waiting = jobs.enqueue("time.sleep", 1000), jobs.enqueue("time.sleep", 0)
    worker = start_process(supervised.command(redis_url, namespace))
    eventually(lambda: supervised.begun(worker, running))
    worker.send(signal.SIGTERM)
    eventually(lambda: "finishing running jobs" in worker.output)

    def stopped_by_force() -> bool:
        worker.send(signal.SIGTERM)
        return not worker.running

    eventually(stopped_by_force)
    assert worker.wait() == 1
    assert redis_client.lrange(queue(jobs.name), 0, -1) == [running.id.encode(), waiting.id.encode()]
    assert running.get_status() == "queued"
    assert redis_client.hget(job(running.id), "envq_crashes") is None


def test_grace_ends_a_job_that_does_not_finish_in_time(
    start_process: Start, redis_url: str, namespace: str, jobs: rq.Queue
) -> None:
    running = jobs.enqueue("time.sleep", 1000)
    worker = start_process(supervised.command(redis_url, namespace, grace_s=0.3))
    eventually(lambda: supervised.begun(worker, running))
    assert worker.stop(timeout=5.0) == 0
    assert running.get_status() == "queued"


def test_stop_while_starting_is_honoured(start_process: Start, redis_url: str, namespace: str) -> None:
    worker = start_process(supervised.command(redis_url, namespace, executors=3))
    eventually(lambda: "starts:" in worker.output)
    assert worker.stop(timeout=5.0) == 0


def test_hung_build_does_not_hold_up_a_stop_for_ever(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis
) -> None:
    redis_client.rpush(supervised.acts(namespace), "build cartpole")
    worker = start_process(supervised.command(redis_url, namespace, stand_in=True))
    eventually(lambda: redis_client.llen(supervised.acts(namespace)) == 0)
    assert worker.stop(timeout=5.0) == 0


def test_executor_that_does_not_read_does_not_hold_up_its_supervisor(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis
) -> None:
    redis_client.rpush(supervised.acts(namespace), "deaf")
    worker = start_process(supervised.command(redis_url, namespace, stand_in=True, grace_s=0.5))
    eventually(lambda: redis_client.exists(f"{namespace}:deaf") == 1)
    channel = f"envq:{namespace}:{redis_client.connection_pool.connection_kwargs['db']}:env"
    for _ in range(2000):
        redis_client.publish(channel, "cartpole")
    assert worker.stop(timeout=5.0) == 0


def test_stop_while_the_server_is_away(start_process: Start, own_server: Callable[..., Server], namespace: str) -> None:
    server = own_server()
    server.stop()
    worker = start_process(supervised.command(server.url(), namespace))
    eventually(lambda: "cannot reach Redis" in worker.output)
    assert worker.stop(timeout=5.0) == 0


def test_worker_that_starts_before_its_server_waits_for_it(
    start_process: Start, own_server: Callable[..., Server], namespace: str
) -> None:
    server = own_server()
    server.stop()
    worker = start_process(supervised.command(server.url(), namespace))
    eventually(lambda: "cannot reach Redis" in worker.output)
    server.start()
    with server.client() as client:
        job = rq.Queue(f"{namespace}:default", connection=client).enqueue("time.sleep", 0)
        eventually(lambda: job.get_status() == "finished", timeout=15.0)
    assert worker.output.count("cannot reach Redis") == 1


def test_sighup_replaces_executors_one_after_the_other(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis
) -> None:
    worker = start_process(supervised.command(redis_url, namespace, executors=2))
    eventually(lambda: len(supervised.executors_of(redis_client, namespace)) == 2)
    before = set(supervised.executors_of(redis_client, namespace))
    worker.send(signal.SIGHUP)

    def all_replaced() -> bool:
        now = set(supervised.executors_of(redis_client, namespace))
        assert now, "somebody is always there"
        return len(now) == 2 and not now & before

    eventually(all_replaced)
    assert worker.running


def test_sighup_of_a_closed_terminal_lets_running_jobs_end_and_stops(
    start_process: Start, redis_url: str, namespace: str, jobs: rq.Queue, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    running, waiting = jobs.enqueue("os.system", f"touch {begun}; sleep 1"), jobs.enqueue("time.sleep", 0)
    on_terminal = [sys.executable, "-c", ON_TERMINAL, *supervised.command(redis_url, namespace)]
    worker = start_process(on_terminal)
    eventually(begun.exists)
    worker.send(signal.SIGHUP)
    assert worker.wait() == 0
    assert running.get_status() == "finished"
    assert waiting.get_status() == "queued"


def test_sigusr1_makes_executors_show_where_they_are(
    start_process: Start, redis_url: str, namespace: str, jobs: rq.Queue
) -> None:
    running = jobs.enqueue("subprocess.run", ["sleep", "1"])
    worker = start_process(supervised.command(redis_url, namespace))
    eventually(lambda: supervised.begun(worker, running))
    eventually(lambda: len(worker.descendants()) == 4)
    worker.send(signal.SIGUSR1)
    eventually(lambda: "subprocess.py" in worker.output and "most recent call first" in worker.output)
    eventually(lambda: running.get_status() == "finished")
