"""A driver as a process: scripts, threads, forks, connecting, and what it says when the server is not there."""

from __future__ import annotations

import os
import subprocess
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from support.servers import Server

import envq
from envq.driver import client as client_module
from envq.driver.client import Client

RunScript = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def unconnected() -> Iterator[None]:
    """This process as one that has neither connected nor declared anything."""
    before = client_module.swap_default(None)
    client_module.driver_scope.close()
    yield
    client_module.driver_scope.close()
    if (client := client_module.swap_default(before)) is not None:
        client.close()


@pytest.fixture
def client(redis_url: str) -> Client:
    return envq.connect(redis_url)


@envq.task
def work(x: int = 0) -> int:
    return x


def test_a_script_needs_nothing_but_the_import(run_script: RunScript, redis_client: redis.Redis) -> None:
    done = run_script("""
        import envq

        def make():            print("built"); return [0]
        def reset(values):     return values

        envq.env.values = envq.EnvironmentVariable(make, reset)

        @envq.task
        def step():
            return envq.env.values

        print("declared")
        job = step.enqueue()
        print(envq.env.values, job.get_status().value)
    """)
    assert done.stdout.splitlines() == ["declared", "built", "[0] queued"]
    assert redis_client.hkeys("envq:default:declarations") == [b"values"]
    assert redis_client.llen("rq:queue:default") == 1


def test_an_initializer_of_the_script_that_raises_ends_it_before_anything_is_sent(
    run_script: RunScript, redis_client: redis.Redis
) -> None:
    done = run_script(
        """
        import envq
        envq.env.broken = envq.EnvironmentVariable(lambda: 1 / 0)
        envq.Queue().enqueue(print, "never")
    """,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("ZeroDivisionError: division by zero")
    assert redis_client.keys("*") == []


def test_the_same_script_again_declares_nothing_new(run_script: RunScript, redis_client: redis.Redis) -> None:
    script = """
        import envq
        builds = []
        envq.env.x = envq.EnvironmentVariable(lambda: builds.append(1) or 1)
        client = envq.connect()
        print(client.declarations.get("x").version)
    """
    assert [run_script(script).stdout for _ in range(3)] == ["1\n"] * 3


def test_a_worker_process_forked_from_a_preloaded_application_works(client: Client) -> None:
    envq.env.model = envq.EnvironmentVariable(lambda: os.getpid())
    assert envq.env.model == os.getpid()
    held, release = threading.Event(), threading.Event()

    def hold_every_lock() -> None:
        with client_module.driver_scope._lock, client_module._default.lock:
            held.set()
            release.wait(10)

    holder = threading.Thread(target=hold_every_lock)
    holder.start()
    held.wait(10)
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, which is the point here
        pid = os.fork()
    if pid == 0:
        try:
            answer = f"{work.enqueue(1).id} {envq.env.model}"
        except BaseException as error:  # noqa: BLE001 - told to the parent
            answer = repr(error)
        os.write(write_end, answer.encode())
        os._exit(0)
    release.set()
    holder.join()
    os.waitpid(pid, 0)
    job_id, model = os.read(read_end, 1000).decode().split()
    assert int(model) == os.getpid()
    assert [job_id, work.enqueue(2).id] == envq.Queue().job_ids


def test_threads_share_the_client_and_none_overtakes_a_declaration(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENVQ_URL", redis_url)
    envq.env.x = envq.EnvironmentVariable(list)
    barrier = threading.Barrier(8)
    problems: list[BaseException] = []
    clients: set[Any] = set()

    def produce() -> None:
        try:
            barrier.wait()
            for number in range(50):
                work.enqueue(number)
                client = client_module.default_client()
                clients.add(client)
                assert "x" in client.declarations.snapshot().declarations
        except BaseException as error:  # noqa: BLE001 - told to the test
            problems.append(error)

    threads = [threading.Thread(target=produce) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert problems == []
    assert len(clients) == 1
    assert len(set(envq.Queue().job_ids)) == 400


def test_a_queue_with_a_connection_publishes_what_is_pending_there_first(redis_url: str) -> None:
    envq.env.x = envq.EnvironmentVariable(list)
    connection = redis.Redis.from_url(redis_url)
    queue = envq.Queue(connection=connection)
    assert connection.keys("*") == []
    queue.enqueue(work)
    assert connection.hkeys("envq:default:declarations") == [b"x"]
    assert client_module.default_client().connection is connection


def test_queues_made_at_import_follow_a_later_connect(redis_url: str, namespace: str) -> None:
    queue = envq.Queue("mail")
    assert repr(queue) == "Queue('mail')"
    envq.connect(redis_url, namespace=namespace)
    assert queue.name == f"{namespace}:mail"
    job = queue.enqueue(work, 1)
    assert job.origin == queue.name
    assert envq.Queue.all(connection=queue.connection)[0].job_ids == [job.id]


def test_a_server_that_is_not_there_is_one_sentence_without_the_password() -> None:
    with pytest.raises(envq.ServerUnavailable, match=r"cannot reach Redis at .*127.0.0.1:1/0") as refused:
        envq.connect("redis://:secret@127.0.0.1:1/0")
    assert "secret" not in str(refused.value)
    with pytest.raises(envq.ConfigurationError, match="not a Redis URL"):
        envq.connect("localhost:6379")


def test_a_wrong_password_is_one_sentence(own_server: Callable[..., Server]) -> None:
    server = own_server()
    with server.client() as admin:
        admin.config_set("requirepass", "right")
        for url in (server.url(), server.url().replace("redis://", "redis://:wrong@")):
            with pytest.raises(envq.ServerUnavailable, match="refuses the user name or password"):
                envq.connect(url)
        admin.config_set("requirepass", "")


def test_waiting_for_a_variable_says_what_is_there_when_the_time_is_up(client: Client) -> None:
    with pytest.raises(envq.NotDeclared, match="nothing"):
        envq.wait_ready("nothing", timeout=1)
    envq.env.x = envq.EnvironmentVariable(list)
    with pytest.raises(envq.GetTimeout, match=r"'x', version 1, is ready on 0 of 2 executors after 0\.2 s"):
        envq.wait_ready("x", workers=2, timeout=0.2)
