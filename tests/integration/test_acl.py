"""The three users of docker/users.conf: each can do its work on a real server, and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from operator import add
from pathlib import Path
from typing import Any

import pytest
import redis
from rq.command import send_stop_job_command
from rq.rate_limit import RateLimit
from support.cli import envq as command
from support.processes import Process
from support.servers import Server
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq.driver.client import Client, driver_scope, swap_default

USERS = Path(__file__).parents[2] / "docker" / "users.conf"
ADMIN = "user default on nopass ~* &* +@all"
# redis-py tells its name, and banners how the server persists; both take no for an answer.
ALWAYS_TRIED = {"client|setinfo", "client", "config|get", "config"}
REFUSALS = ("permission", "can't access", "can't run")

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def server(server_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the users as they are in the file; the tests themselves are its administrator."""
    text = USERS.read_text()
    assert "\nuser default off\n" in text
    file = tmp_path_factory.mktemp("acl") / "users.conf"
    file.write_text(text.replace("user default off", ADMIN))
    made = Server(server_binary, configuration=file).start()
    yield made
    made.remove()


@pytest.fixture
def admin(server: Server) -> Iterator[redis.Redis]:
    with server.client() as client:
        client.flushall()
        client.execute_command("ACL", "LOG", "RESET")
        yield client


def url_of(server: Server, user: str) -> str:
    return f"redis://{user}:change-me-{user}@127.0.0.1:{server.port}/0"


@pytest.fixture
def producer(server: Server, admin: redis.Redis) -> Iterator[Client]:
    """This process as a driver with a producer's rights."""
    driver_scope.close()
    before = swap_default(None)
    yield envq.connect(url_of(server, "producer"))
    driver_scope.close()
    swap_default(before)


@pytest.fixture
def working(server: Server, admin: redis.Redis, tmp_path: Path) -> Iterator[WorkerProcess]:
    worker = WorkerProcess("high", "default", "--lease", "3", url=url_of(server, "worker"), directory=tmp_path)
    try:
        eventually(lambda: admin.scard("rq:workers") == 1, 20)
        yield worker
    finally:
        worker.end()


def refused(admin: redis.Redis) -> list[str]:
    """What anybody tried without the right to it."""
    entries: list[dict[bytes, Any]] = admin.execute_command("ACL", "LOG")
    found = [dict(zip(each[::2], each[1::2], strict=True)) if isinstance(each, list) else each for each in entries]
    told = [{_text(k): _text(v) for k, v in entry.items()} for entry in found]
    return [f"{each['username']}: {each['object']}" for each in told if each["object"] not in ALWAYS_TRIED]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def test_producer_and_worker_do_all_their_work(producer: Client, working: WorkerProcess, admin: redis.Redis) -> None:
    envq.env.total = envq.EnvironmentVariable(lambda: [0], driver="never")
    envq.wait_ready("total", timeout=20)
    queue = envq.Queue()

    def read() -> list[int]:
        return envq.env.total

    def fail_once() -> str:
        from rq import get_current_job

        job: Any = get_current_job()
        job.meta["tries"] = job.meta.get("tries", 0) + 1
        job.save_meta()
        if job.meta["tries"] == 1:
            raise ValueError("once")
        return "at last"

    jobs = [
        queue.enqueue(read),
        *queue.enqueue_calls(add, [(n, n) for n in range(70)]),
        queue.enqueue(add, 1, 1, job_id="of-my-own", unique=True),
        queue.enqueue(fail_once, retry=envq.Retry(max=1)),
        queue.enqueue_in(timedelta(seconds=0), add, 3, 4),
        envq.Queue("high").enqueue(add, 5, 6, result_ttl=-1, meta={"some": "meta"}),
        queue.enqueue(add, 7, 8, rate_limit=RateLimit("few", 1)),
    ]
    group = envq.Group.create(connection=producer.connection)
    group.enqueue_many(queue, [envq.Queue.prepare_data(add, (1, 1))])
    values = envq.get(jobs, timeout=40)
    assert values[0] == [0]
    assert values[1:71] == [2 * n for n in range(70)]
    assert values[71:] == [2, "at last", 7, 11, 15]
    child = queue.enqueue(add, 0, 1, depends_on=jobs[0])
    assert envq.get(child, timeout=20) == 1

    def wait() -> None:
        import threading

        threading.Event().wait(60)

    running = queue.enqueue(wait)
    eventually(lambda: running.id in working.output)
    send_stop_job_command(producer.connection, running.id)
    with pytest.raises(envq.errors.JobStopped):
        envq.get(running, timeout=20)
    waiting = queue.enqueue_in(timedelta(hours=1), add, 1, 1)
    waiting.cancel()
    waiting.delete()
    del envq.env.total
    working.end()
    assert refused(admin) == []
    assert "NOPERM" not in working.output


def test_a_watcher_sees_everything(
    server: Server,
    producer: Client,
    working: WorkerProcess,
    admin: redis.Redis,
    start_process: Callable[..., Process],
) -> None:
    envq.env.seen = envq.EnvironmentVariable(lambda: 1, driver="never")
    envq.wait_ready("seen", timeout=20)
    envq.get(envq.Queue().enqueue(add, 1, 2), timeout=20)
    url = url_of(server, "watcher")
    assert "seen" in command("info", "--url", url).stdout
    assert "seen" in command("env", "list", "--url", url).stdout
    assert "seen" in command("env", "show", "seen", "--url", url).stdout
    assert command("health", "--url", url).returncode == 0
    monitor = start_process([sys.executable, "-m", "envq", "monitor", "--url", url])
    number = iter(range(100))

    def told() -> bool:
        envq.Queue().enqueue(add, next(number), 2)
        return "job.finished" in monitor.output

    eventually(told, 20)
    monitor.end()
    assert refused(admin) == []


FORBIDDEN: list[tuple[str, ...]] = [
    ("FLUSHALL",), ("FLUSHDB",), ("KEYS", "*"), ("CONFIG", "GET", "*"), ("ACL", "LIST"),
    ("SCRIPT", "FLUSH"), ("SHUTDOWN",), ("MONITOR",), ("CLIENT", "KILL", "TYPE", "normal"), ("CLIENT", "LIST"),
    ("SAVE",), ("REPLICAOF", "127.0.0.1", "1"), ("MODULE", "LIST"), ("MIGRATE", "h", "1", "rq:x", "0", "1"),
    ("GET", "somebody:elses"), ("SET", "somebody:elses", "1"), ("PUBLISH", "somebody:elses", "1"),
    ("EVAL", "return redis.call('GET', 'somebody:elses')", "0"), ("EVAL", "return redis.call('FLUSHALL')", "0"),
]  # fmt: skip
OF_WORKERS: list[tuple[str, ...]] = [
    ("LPOP", "rq:queue:default"), ("BLMOVE", "rq:queue:default", "rq:x", "LEFT", "RIGHT", "0.01"),
    ("LMOVE", "rq:queue:default", "rq:x", "LEFT", "RIGHT"), ("CLIENT", "UNBLOCK", "1"),
    ("RENAME", "rq:queue:default", "rq:queue:mine"), ("SUBSCRIBE", "somebody:elses"),
]  # fmt: skip
WRITES: list[tuple[str, ...]] = [
    ("SET", "envq:default:generation", "9:x"), ("HSET", "envq:default:declarations", "n", "{}"), ("DEL", "rq:job:x"),
    ("HSET", "rq:job:x", "status", "finished"), ("LPUSH", "rq:queue:default", "x"), ("EXPIRE", "rq:job:x", "1"),
    ("PUBLISH", "envq:default:0:events", "{}"), ("ZADD", "rq:wip:default", "1", "x"), ("SADD", "rq:queues", "x"),
    ("XADD", "envq:default:events", "*", "a", "b"), ("EVAL", "return redis.call('DEL', KEYS[1])", "1", "rq:job:x"),
    ("SUBSCRIBE", "rq:pubsub:somebody"),
]  # fmt: skip
CASES = [
    *((user, each) for user in ("producer", "worker", "watcher") for each in FORBIDDEN),
    *((user, each) for user in ("producer", "watcher") for each in OF_WORKERS),
    *(("watcher", each) for each in WRITES),
]


def _named(value: Any) -> str:
    return value if isinstance(value, str) else " ".join(value)


@pytest.mark.parametrize("user, forbidden", CASES, ids=_named)
def test_nobody_can_do_more(server: Server, user: str, forbidden: tuple[str, ...]) -> None:
    with redis.Redis.from_url(url_of(server, user)) as client, pytest.raises(redis.ResponseError) as caught:
        client.execute_command(*forbidden)
    said = str(caught.value)
    assert isinstance(caught.value, redis.exceptions.NoPermissionError) or any(each in said for each in REFUSALS), said
