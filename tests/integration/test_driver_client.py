"""The producer's connection among threads, forks and lost connections."""

from __future__ import annotations

import os
import subprocess
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from support.proxy import CUTS, CuttingProxy
from support.servers import Server
from support.waiting import eventually

import envq
from envq.driver.client import Client
from envq.store.connection import DRIVER_CONNECTIONS
from envq.store.driver_client import DriverPool

RunScript = Callable[..., subprocess.CompletedProcess[str]]
DEFAULT = "rq:queue:default"


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    new = Client(redis_url)
    yield new
    new.close()


@envq.task
def work(x: int = 0) -> int:
    return x


def run_threads(number: int, function: Callable[[], None]) -> list[BaseException]:
    """Call it in so many threads that begin together; what they raised."""
    barrier = threading.Barrier(number)
    problems: list[BaseException] = []

    def run() -> None:
        try:
            barrier.wait()
            function()
        except BaseException as error:  # noqa: BLE001 - told to the test
            problems.append(error)

    threads = [threading.Thread(target=run) for _ in range(number)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return problems


def fork(child: Callable[[], object]) -> int:
    """The child's process id; it ends with 0 if the function returned."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, which is the point here
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child()
            status = 0
        finally:
            os._exit(status)
    return pid


def ended_well(pid: int) -> bool:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("limit", [1, 3, DRIVER_CONNECTIONS])
def test_many_threads_share_few_connections_and_each_gets_its_own_replies(
    limit: int, own_server: Callable[..., Server]
) -> None:
    server = own_server()
    client = Client(f"{server.url()}?max_connections={limit}")
    queue = envq.Queue(client=client)
    seen: list[int] = []

    def produce() -> None:
        for number in range(10):
            job = queue.enqueue(work, number)
            assert client.connection.echo(job.id) == job.id.encode()
            assert client.connection.hget(f"rq:job:{job.id}", "status") == b"queued"
        seen.append(client.connection.info("clients")["connected_clients"])

    assert run_threads(200, produce) == []
    assert max(seen) <= limit
    assert len(set(client.connection.lrange(DEFAULT, 0, -1))) == 2000
    client.close()


def test_a_process_forked_in_the_midst_of_enqueuing_threads_enqueues_on_connections_of_its_own(client: Client) -> None:
    queue = envq.Queue(client=client)
    queue.enqueue(work)
    stop = threading.Event()
    ids: list[str] = []

    def produce() -> None:
        while not stop.is_set():
            ids.append(queue.enqueue(work).id)

    def child() -> None:
        for _ in range(5):
            queue.enqueue(work, 1)
        assert run_threads(20, lambda: queue.enqueue(work, 1) and None) == []

    def fork_often() -> None:
        try:
            assert [ended_well(fork(child)) for _ in range(10)] == [True] * 10
        finally:
            stop.set()

    forking: list[BaseException] = []
    forker = threading.Thread(target=lambda: forking.extend(run_threads(1, fork_often)))
    forker.start()
    problems = run_threads(100, produce)
    forker.join()
    assert problems == forking == []
    waiting = client.connection.lrange(DEFAULT, 0, -1)
    assert len(waiting) == len(set(waiting)) == 1 + len(ids) + 10 * 25
    assert {job_id.encode() for job_id in ids} <= set(waiting)


def test_a_child_neither_uses_nor_closes_a_connection_that_its_parent_was_using(client: Client) -> None:
    pool: Any = client.connection.connection_pool
    taken = pool.get_connection()
    taken.send_command("PING")

    def child() -> None:
        pool.release(taken)
        assert client.connection.echo("child") == b"child"

    assert ended_well(fork(child))
    assert taken.read_response() == b"PONG"
    pool.release(taken)
    assert client.connection.echo("parent") == b"parent"


def test_a_fork_without_python_s_hooks_is_noticed(run_script: RunScript) -> None:
    done = run_script("""
        import ctypes, os, envq
        from operator import neg

        queue = envq.Queue()
        queue.enqueue(neg, 0)
        pid = ctypes.CDLL(None).fork()  # as a server written in C does
        if pid == 0:
            queue.enqueue(neg, 1)
            os._exit(0)
        for number in range(100):
            queue.enqueue(neg, 1)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), len(set(queue.job_ids)))
    """)
    assert done.stdout.split() == ["0", "102"]


def test_a_connection_that_the_server_closed_is_made_again_without_a_second_job(
    own_server: Callable[..., Server],
) -> None:
    server = own_server()
    client = Client(server.url())
    queue = envq.Queue(client=client)
    queue.enqueue(work)
    with server.client() as admin:
        admin.client_kill_filter(_type="normal", skipme=True)
    queue.enqueue(work)
    server.stop()
    server.start()
    queue.enqueue(work)
    assert queue.count == 1
    client.close()


@pytest.mark.parametrize("where", CUTS)
@pytest.mark.parametrize("parent", ["none", "finished", "waiting"])
def test_a_job_with_an_id_of_its_own_is_enqueued_once_whatever_became_of_the_reply(
    own_server: Callable[..., Server], where: str, parent: str
) -> None:
    server = own_server()
    proxy = CuttingProxy(server.port)
    client = Client(f"redis://127.0.0.1:{proxy.port}/0")
    queue = envq.Queue(client=client)
    depends_on = None if parent == "none" else queue.enqueue(work, job_id="parent")
    with server.client() as admin:
        if parent == "finished":
            admin.hset("rq:job:parent", "status", "finished")
        admin.delete(DEFAULT)
        proxy.cut(b"mine", where, times=1)
        job = queue.enqueue_call(work, job_id="mine", depends_on=depends_on)
        assert proxy.left == 0
        assert admin.lrange(DEFAULT, 0, -1) == ([] if parent == "waiting" else [b"mine"])
        assert admin.hget("rq:job:mine", "status") == job.get_status(refresh=False).value.encode()
        admin.delete(DEFAULT)
        proxy.cut(b"enqueued_at", where, times=1)
        queue.enqueue_job(job)  # again, which is no repetition
        assert admin.lrange(DEFAULT, 0, -1) == ([] if parent == "waiting" else [b"mine"])
    client.close()
    proxy.close()


def test_jobs_go_on_when_the_server_forgot_its_scripts(own_server: Callable[..., Server]) -> None:
    client = Client(own_server().url())
    queue = envq.Queue(client=client)
    queue.enqueue(work)
    client.connection.script_flush()
    queue.enqueue(work)
    assert queue.count == 2
    client.close()


def test_who_waits_too_long_for_a_connection_is_told_and_nobody_is_forgotten(redis_url: str) -> None:
    pool: Any = DriverPool.from_url(redis_url, timeout=0.01, max_connections=1)
    connection = pool.get_connection()
    with pytest.raises(redis.ConnectionError, match="all 1 connections are in use"):
        pool.get_connection()
    pool.release(connection)
    pool.release(connection)  # as redis-py may do where an error strikes in between
    assert pool.get_connection() is connection
    pool.release(connection)
    pool.disconnect()


def test_connections_are_given_in_the_order_in_which_threads_asked(redis_url: str) -> None:
    pool: Any = DriverPool.from_url(redis_url, timeout=10, max_connections=1)
    order: list[int] = []

    def use(number: int) -> None:
        connection = pool.get_connection()
        order.append(number)
        pool.release(connection)

    taken = pool.get_connection()
    threads: list[threading.Thread] = []
    for number in range(5):
        threads.append(threading.Thread(target=use, args=(number,)))
        threads[-1].start()
        eventually(lambda: len(pool._waiters) == len(threads))
    pool.release(taken)
    for each in threads:
        each.join()
    assert order == [0, 1, 2, 3, 4]
    pool.disconnect()


def test_an_unread_reply_is_never_taken_for_the_next_one(client: Client) -> None:
    pool: Any = client.connection.connection_pool
    queue = envq.Queue(client=client)
    queue.enqueue(work)
    connection = pool.get_connection()
    connection.send_command("ECHO", "unread")
    eventually(connection.can_read)
    pool.release(connection)
    job = queue.enqueue(work)
    assert client.connection.echo(job.id) == job.id.encode()
