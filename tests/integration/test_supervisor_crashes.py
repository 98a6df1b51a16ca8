"""Executors that die: replaced, their jobs returned, what they started killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
import rq
from support import supervised
from support.processes import Process
from support.servers import Server
from support.waiting import eventually

from envq.store.events import read
from envq.store.keys import Keys, job, queue

Start = Callable[..., Process]


@pytest.fixture
def jobs(redis_client: redis.Redis, namespace: str) -> rq.Queue:
    """The queue "default" of the test's namespace, as a stock client sees it."""
    return rq.Queue(f"{namespace}:default", connection=redis_client)


def ids_in(jobs: rq.Queue) -> list[str]:
    return [entry.decode() for entry in jobs.connection.lrange(queue(jobs.name), 0, -1)]


def kinds(client: redis.Redis, namespace: str) -> list[str]:
    entries = client.xrange(Keys(namespace).events)
    return [each.kind for _, fields in entries for each in read(fields[b"event"])]


def test_job_that_kills_its_process_goes_back_three_times_and_then_fails(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis, jobs: rq.Queue
) -> None:
    poison = jobs.enqueue("signal.raise_signal", 11)
    start_process(supervised.command(redis_url, namespace, scheduler=False))
    eventually(lambda: poison.get_status() == "failed", timeout=20.0)
    eventually(lambda: kinds(redis_client, namespace).count("job.lost") == 1)
    assert kinds(redis_client, namespace).count("executor.died") == 4
    assert kinds(redis_client, namespace).count("job.requeued") == 3
    result = poison.latest_result()
    assert result is not None
    assert "SIGSEGV" in str(result.exc_string)


def test_job_runs_again_soon_after_its_executor_was_killed(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis, jobs: rq.Queue
) -> None:
    lasting = jobs.enqueue("time.sleep", 1)
    start_process(supervised.command(redis_url, namespace, scheduler=False))
    name = eventually(lambda: redis_client.hget(job(lasting.id), "worker_name") or False).decode()
    eventually(lambda: lasting.get_status() == "started")
    os.kill(pid_of(redis_client, name), signal.SIGKILL)
    eventually(lambda: lasting.get_status() == "finished", timeout=5.0)
    assert redis_client.hget(job(lasting.id), "envq_crashes") in (None, b"1")
    assert not redis_client.sismember("rq:workers", f"rq:worker:{name}")
    assert redis_client.hget(f"rq:worker:{name}", "death")


def pid_of(client: redis.Redis, name: str) -> int:
    return int(client.hget(f"rq:worker:{name}", "pid") or 0)


def test_what_an_executor_started_dies_with_it(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis, jobs: rq.Queue
) -> None:
    lasting = jobs.enqueue("os.system", "sleep 1000")
    worker = start_process(supervised.command(redis_url, namespace, scheduler=False))
    eventually(lambda: commands_of(worker, "sleep") != [])
    name = (redis_client.hget(job(lasting.id), "worker_name") or b"").decode()
    redis_client.delete(job(lasting.id))  # so that it does not start again
    os.kill(pid_of(redis_client, name), signal.SIGKILL)
    eventually(lambda: commands_of(worker, "sleep") == [])
    assert worker.running


def commands_of(worker: Process, word: str) -> list[int]:
    found = []
    for pid in worker.descendants():
        try:
            text = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if text.startswith(word.encode()):
            found.append(pid)
    return found


def test_claims_that_were_waiting_go_back_uncounted_and_in_order(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis, jobs: rq.Queue
) -> None:
    first, second, third = (jobs.enqueue("time.sleep", 0) for _ in range(3))
    redis_client.rpush(supervised.acts(namespace), "run")
    start_process(supervised.command(redis_url, namespace, stand_in=True, scheduler=False))
    eventually(lambda: redis_client.exists(supervised.at_work(namespace)) == 1)
    kill_executors(redis_client, namespace)
    eventually(lambda: ids_in(jobs) == [first.id, second.id, third.id])
    assert first.get_status() == "queued"
    crashes = [redis_client.hget(job(each.id), "envq_crashes") for each in (first, second, third)]
    assert crashes == [b"1", None, None]


def kill_executors(client: redis.Redis, namespace: str, supervisor: int = 0) -> None:
    if not supervisor:
        [name] = [member.decode() for member in client.zrange(Keys(namespace).executors, 0, -1)]
        supervisor = int(name.split(".")[-3])
    for pid in children_of(supervisor):
        os.kill(pid, signal.SIGKILL)


def test_death_before_user_code_began_is_not_counted(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis, jobs: rq.Queue
) -> None:
    prepared = jobs.enqueue("time.sleep", 0)
    redis_client.rpush(supervised.acts(namespace), "prepare")
    start_process(supervised.command(redis_url, namespace, stand_in=True, scheduler=False))
    eventually(lambda: ids_in(jobs) == [])
    kill_executors(redis_client, namespace)
    eventually(lambda: ids_in(jobs) == [prepared.id])
    assert redis_client.hget(job(prepared.id), "envq_crashes") is None


def test_death_in_a_build_inside_a_job_counts_for_that_job(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis, jobs: rq.Queue
) -> None:
    reader, waiting = jobs.enqueue("time.sleep", 0), jobs.enqueue("time.sleep", 0)
    redis_client.hset(Keys(namespace).declarations, "cartpole", "{}")
    redis_client.rpush(supervised.acts(namespace), "run-and-build cartpole")
    start_process(supervised.command(redis_url, namespace, stand_in=True, scheduler=False))
    eventually(lambda: redis_client.exists(supervised.at_work(namespace)) == 1)
    kill_executors(redis_client, namespace)
    eventually(lambda: ids_in(jobs) == [reader.id, waiting.id])
    assert redis_client.hget(job(reader.id), "envq_crashes") == b"1"
    assert redis_client.hget(job(waiting.id), "envq_crashes") is None


def test_executors_die_with_their_supervisor(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis
) -> None:
    worker = start_process(supervised.command(redis_url, namespace, executors=2))
    eventually(lambda: len(supervised.executors_of(redis_client, namespace)) == 2)
    eventually(lambda: len(worker.descendants()) == 4)  # the scheduler and the watchman among them
    os.kill(worker.pid, signal.SIGKILL)
    eventually(lambda: worker.descendants() == [], timeout=2.0)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_executors_started_dies_with_the_supervisor(
    start_process: Start, redis_url: str, namespace: str, jobs: rq.Queue, method: str
) -> None:
    jobs.enqueue("os.system", "sleep 1000 & sleep 1000")
    worker = start_process(supervised.command(redis_url, namespace, start_method=method))
    eventually(lambda: len(commands_of(worker, "sleep")) == 2)
    os.kill(worker.pid, signal.SIGKILL)
    eventually(lambda: worker.descendants() == [])


def test_a_watchman_that_is_killed_has_a_successor(
    start_process: Start, redis_url: str, namespace: str, jobs: rq.Queue
) -> None:
    jobs.enqueue("os.system", "sleep 1000 & sleep 1000")
    worker = start_process(supervised.command(redis_url, namespace))
    eventually(lambda: len(commands_of(worker, "sleep")) == 2)
    [first] = watchmen(worker)
    os.kill(first, signal.SIGKILL)
    eventually(lambda: watchmen(worker) not in ([], [first]))
    os.kill(worker.pid, signal.SIGKILL)
    eventually(lambda: worker.descendants() == [])


def watchmen(worker: Process) -> list[int]:
    return [pid for pid in worker.descendants() if b"groups.discard" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_executor_shares_no_socket_with_its_supervisor(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis
) -> None:
    worker = start_process(supervised.command(redis_url, namespace, executors=3))
    eventually(lambda: len(supervised.executors_of(redis_client, namespace)) == 3)
    eventually(lambda: len(worker.descendants()) == 5)
    seen = sockets_of(worker.pid)
    assert seen, "the supervisor has sockets"
    for pid in worker.descendants():
        assert not seen & sockets_of(pid)
        seen |= sockets_of(pid)


def sockets_of(pid: int) -> set[str]:
    links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    return {link for link in links if link.startswith("socket:")}


def test_crash_while_the_server_does_not_answer_is_settled_when_it_does(
    start_process: Start, own_server: Callable[..., Server], namespace: str
) -> None:
    server = own_server()
    with server.client() as client:
        crashed = rq.Queue(f"{namespace}:default", connection=client).enqueue("time.sleep", 0)
        client.rpush(supervised.acts(namespace), "run")
        worker = start_process(supervised.command(server.url(), namespace, stand_in=True, scheduler=False))
        eventually(lambda: client.exists(supervised.at_work(namespace)) == 1)
        server.pause()
        try:
            kill_executors(client, namespace, worker.pid)
            eventually(lambda: "cannot reach Redis" in worker.output, timeout=15.0)
        finally:
            server.resume()
        eventually(lambda: crashed.get_status() == "queued", timeout=15.0)
        assert client.hget(job(crashed.id), "envq_crashes") == b"1"
        assert worker.output.count("cannot reach Redis") == 1


def test_orphans_that_became_children_of_the_worker_do_not_stay_as_zombies(
    start_process: Start, redis_url: str, namespace: str, jobs: rq.Queue
) -> None:
    """As in a container, where the worker is process 1."""
    worker = start_process(supervised.command(redis_url, namespace, adopt_orphans=True, scheduler=False))
    leaving = jobs.enqueue("os.system", "(sleep 0.2 &) ; true")
    eventually(lambda: leaving.get_status() == "finished")
    eventually(lambda: len(children_of(worker.pid)) == 2)  # the executor and the watchman
    assert zombies_under(worker.pid) == []


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def zombies_under(pid: int) -> list[int]:
    return [
        child
        for child in children_of(pid)
        if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    ]


def test_jobs_of_a_vanished_worker_are_taken_over(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis, jobs: rq.Queue
) -> None:
    first, second = jobs.enqueue("time.sleep", 0), jobs.enqueue("time.sleep", 0)
    redis_client.rpush(supervised.acts(namespace), "run")
    lost = start_process(supervised.command(redis_url, namespace, stand_in=True, scheduler=False, lease=2))
    eventually(lambda: redis_client.exists(supervised.at_work(namespace)) == 1)
    lost.kill()
    start_process(supervised.command(redis_url, namespace, scheduler=False, lease=2))
    eventually(lambda: first.get_status() == "finished")
    eventually(lambda: second.get_status() == "finished")
    assert redis_client.hget(job(first.id), "envq_crashes") in (None, b"1")
    eventually(lambda: redis_client.zcard(Keys(namespace).executors) == 1)
