"""A server that answers and refuses: each state is one sentence for drivers, and workers go on once it has passed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from operator import neg
from typing import Any

import pytest
import redis
from support.servers import Server
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq.store.connection import worker_client

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(120)]

OwnServer = Callable[..., Server]
Worker = Callable[..., WorkerProcess]
negative = envq.task(neg)


@contextmanager
def is_a_replica(server: Server) -> Generator[None]:
    with server.client() as admin:
        admin.execute_command("REPLICAOF", "127.0.0.1", "1")
        yield
        admin.execute_command("REPLICAOF", "NO", "ONE")


@contextmanager
def has_too_few_replicas(server: Server) -> Generator[None]:
    with server.client() as admin:
        admin.config_set("min-replicas-to-write", 1)
        yield
        admin.config_set("min-replicas-to-write", 0)


@contextmanager
def cannot_save(server: Server) -> Generator[None]:
    """The disk is full, or the folder gone: Redis refuses to write after a snapshot has failed."""
    with server.client() as admin:
        admin.config_set("save", "3600 1")
        (server.directory / "dump.rdb").unlink(missing_ok=True)
        (server.directory / "dump.rdb").mkdir()
        admin.set("test:key", 1)
        admin.bgsave()
        eventually(lambda: admin.info("persistence")["rdb_last_bgsave_status"] == "err")
        yield
        admin.config_set("stop-writes-on-bgsave-error", "no")


@contextmanager
def is_busy(server: Server) -> Generator[None]:
    """A script of somebody runs for ever."""
    with server.client() as admin:
        with suppress(redis.RedisError):
            admin.config_set("busy-reply-threshold", 50)
        with suppress(redis.RedisError):
            admin.config_set("lua-time-limit", 50)

        def hang() -> None:
            with server.client() as other, suppress(redis.RedisError):
                other.eval("while true do end", 0)

        thread = threading.Thread(target=hang)
        thread.start()

        def refuses() -> bool:
            try:
                admin.get("test:key")
            except redis.ResponseError as error:
                return str(error).startswith("BUSY")
            return False

        eventually(refuses)
        yield
        admin.execute_command("SCRIPT", "KILL")
        thread.join()


STATES: list[Any] = [
    pytest.param(is_a_replica, "is a replica, which takes no jobs", id="READONLY"),
    pytest.param(has_too_few_replicas, "min-replicas-to-write asks for replicas", id="NOREPLICAS"),
    pytest.param(cannot_save, "cannot save to its disk", id="MISCONF"),
    pytest.param(is_busy, "is busy with a script", id="BUSY"),
]


@pytest.mark.parametrize(("state", "sentence"), STATES)
def test_a_driver_is_told_in_one_sentence_and_goes_on_once_it_has_passed(
    state: Callable[[Server], Any], sentence: str, own_server: OwnServer
) -> None:
    server = own_server()
    client = envq.connect(server.url(), retry_for=0.3)
    negative.enqueue(1)
    with state(server):
        for enqueue in (negative.enqueue, negative.options(job_id="mine").enqueue, lambda x: negative.map([x])):
            with pytest.raises(envq.ServerUnavailable, match=sentence) as told:
                enqueue(2)
            assert "\n" not in str(told.value)
            assert isinstance(told.value, redis.RedisError)
    negative.enqueue(3)
    assert client.connection.llen("rq:queue:default") == 2
    assert not client.connection.exists("rq:job:mine")


@pytest.mark.parametrize(("state", "sentence"), STATES)
def test_a_worker_says_so_and_goes_on_once_it_has_passed(
    state: Callable[[Server], Any], sentence: str, own_server: OwnServer, worker: Worker
) -> None:
    server = own_server()
    running = worker(url=server.url())
    envq.connect(server.url(), retry_for=30)
    names = running.executors()
    assert envq.get(negative.enqueue(1), timeout=30) == -1
    with state(server):
        eventually(lambda: sentence in running.output, timeout=30)
        assert running.output.count(sentence) < 10, "not in a flood"
    assert envq.get(negative.enqueue(2), timeout=60) == -2
    assert envq.get(negative.enqueue_in(1, 3), timeout=60) == -3
    eventually(lambda: running.executors() == names, timeout=30)


def test_a_driver_waits_for_a_state_that_passes(own_server: OwnServer) -> None:
    server = own_server()
    envq.connect(server.url(), retry_for=60)
    negative.enqueue(1)
    done = threading.Event()

    def enqueue() -> None:
        negative.enqueue(2)
        done.set()

    with is_a_replica(server):
        thread = threading.Thread(target=enqueue)
        thread.start()
        assert not done.is_set()
    thread.join(60)
    assert done.is_set()


def test_a_server_that_takes_no_more_connections_is_told_and_waited_for(own_server: OwnServer, worker: Worker) -> None:
    server = own_server()
    with server.client() as admin:
        admin.config_set("maxclients", 1)
        with pytest.raises(envq.ServerUnavailable, match="raise maxclients"):
            envq.connect(server.url())
        running = worker("--wait-for-server", "60", url=server.url(), wait=False)
        eventually(lambda: "raise maxclients" in running.output, timeout=30)
        admin.config_set("maxclients", 100)
    running.wait_ready()


def test_a_right_that_is_missing_is_told_and_nothing_is_written(own_server: OwnServer) -> None:
    server = own_server()
    with server.client() as admin:
        admin.execute_command(
            "ACL", "SETUSER", "reader", "on", ">secret", "~*", "&*", "+@all", "-evalsha", "-eval", "-multi"
        )
    envq.connect(server.url().replace("//", "//reader:secret@"))
    with pytest.raises(envq.ServerUnavailable, match="does not let this user do that") as told:
        negative.enqueue(1)
    assert "secret" not in str(told.value)
    with server.client() as admin:
        assert admin.dbsize() == 0


def test_jobs_go_on_while_the_server_forgets_its_scripts(own_server: OwnServer, worker: Worker) -> None:
    server = own_server()
    worker("-w", "2", url=server.url(), executors=2)
    envq.connect(server.url())
    stop = threading.Event()

    def flush() -> None:
        with server.client() as admin:
            while not stop.is_set():
                admin.script_flush()

    flusher = threading.Thread(target=flush)
    flusher.start()
    try:
        jobs = [negative.enqueue(number) for number in range(100)] + negative.map(range(100))
        assert envq.get(jobs, timeout=60) == [-x for x in range(100)] * 2
    finally:
        stop.set()
        flusher.join()
    assert all(len(job.results()) == 1 for job in jobs)


def test_at_maxmemory_queues_drain_and_what_failed_ends_once_there_is_room(
    own_server: OwnServer, worker: Worker
) -> None:
    """Nothing is enqueued by halves; successes are stored, failures and callbacks wait for room."""
    server = own_server()
    client = envq.connect(server.url())
    good, bad = negative.map(range(200)), negative.map(["text"] * 20)
    with worker_client(server.url()) as admin:
        admin.setrange("test:ballast", 20_000_000, b"x")
        admin.config_set("maxmemory", admin.info("memory")["used_memory"] - 1_000_000)
        before = set(admin.keys())
        for enqueue in (negative.enqueue, negative.options(job_id="mine").enqueue, lambda x: negative.map([x] * 10)):
            with pytest.raises(envq.ServerUnavailable, match=r"no memory left.*raise maxmemory"):
                enqueue(1)
        assert set(admin.keys()) == before
        worker("--no-scheduler", "-w", "2", url=server.url(), wait=False)
        assert envq.get(good, timeout=60) == [-x for x in range(200)]
        assert admin.info("memory")["used_memory"] > int(admin.config_get("maxmemory")["maxmemory"]), "still full"
        admin.delete("test:ballast")
    results = envq.get(bad, timeout=60, return_exceptions=True)
    assert all(isinstance(each, envq.JobFailed) for each in results)
    assert all(len(job.results()) == 1 for job in (*good, *bad))
    assert client.connection.llen("rq:queue:default") == 0
