"""A whole host is cut off while it runs jobs, and comes back: its jobs run elsewhere, and the ghost changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.network import Host, another_host
from support.processes import Process
from support.servers import Server
from support.waiting import eventually

import envq
from envq.driver.client import Client, driver_scope, swap_default

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(120)]

LEASE = ("--lease", "2")
CALLBACKS = "def note(job, connection, *_):\n    connection.incr(f'called:{job.id}')\n"
KINDS = {  # arguments of the workers, options of the job
    "batches": ((), {}),
    "never twice": ((), {"on_crash": "fail"}),
    "through rq": (("--through-rq",), {}),
    "with a callback": ((), {"on_success": envq.Callback("callbacks.note")}),
}


@pytest.fixture
def host() -> Iterator[Host]:
    with another_host() as host:
        yield host


@pytest.fixture
def server(own_server: Callable[..., Server], host: Host) -> Server:
    """It listens on our side of the cable as well."""
    return own_server("--bind", "127.0.0.1", host.outside, "--protected-mode", "no")


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    driver_scope.close()
    before = swap_default(None)
    yield envq.connect(server.url())
    driver_scope.close()
    swap_default(before)


@pytest.fixture
def work(start_process: Callable[..., Process], client: Client, tmp_path: Path) -> Callable[..., Process]:
    """A factory of ready workers, here or on the other host."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "callbacks.py").write_text(CALLBACKS)

    def work(label: str, url: str, *arguments: str, on: Host | None = None) -> Process:
        command = [sys.executable, "-m", "envq", "worker", "--url", url, "--name", label, *LEASE, "--no-scheduler"]
        command += ["--path", str(tmp_path / "modules"), *arguments]
        started = start_process(on.command(command) if on else command)
        eventually(lambda: names_of(client.connection, label) != [], timeout=20.0)
        return started

    return work


def names_of(client: redis.Redis, label: str) -> list[str]:
    keys = [key.decode() for key in client.smembers("rq:workers")]
    return [key for key in keys if f":{label}." in key]


def records(client: redis.Redis, job: envq.Job[Any]) -> dict[bytes, object]:
    """All that Redis holds of the job, and all registries."""
    found: dict[bytes, object] = {}
    for key in client.scan_iter("rq:*", count=1000):
        kind = client.type(key)
        if kind == b"zset":
            found[key] = client.zrange(key, 0, -1, withscores=True)
        elif job.id.encode() in key:
            found[key] = client.hgetall(key) if kind == b"hash" else client.dump(key)
    return found


@pytest.mark.parametrize(("arguments", "options"), KINDS.values(), ids=KINDS)
def test_a_host_that_comes_back_finds_its_jobs_done_and_works_on(
    host: Host,
    server: Server,
    client: Client,
    work: Callable[..., Process],
    tmp_path: Path,
    arguments: tuple[str, ...],
    options: dict[str, Any],
) -> None:
    gate = tmp_path / "gate"

    def slow_at_first() -> int:
        import threading

        from rq import get_current_job

        job: Any = get_current_job()
        runs = int(job.connection.incr(f"runs:{job.id}"))
        while runs == 1 and not gate.exists():
            threading.Event().wait(0.02)
        return runs

    ghost = work("ghost", f"redis://{host.outside}:{server.port}/0", *arguments, on=host)
    job = envq.task(slow_at_first).options(**options).enqueue()
    behind = envq.task(lambda: "fine").starmap([()] * 3)
    eventually(lambda: client.connection.get(f"runs:{job.id}") == b"1")
    host.cut()
    here = work("here", server.url(), *arguments)
    if options.get("on_crash") == "fail":
        with pytest.raises(envq.WorkerLost, match="no sign of life"):
            envq.get(job, timeout=20)
    else:
        assert envq.get(job, timeout=20) == 2
    assert envq.get(behind, timeout=20) == ["fine"] * 3
    eventually(lambda: names_of(client.connection, "ghost") == [])
    before = records(client.connection, job)
    gate.touch()  # the ghost's execution ends while it is cut off
    host.mend()
    eventually(lambda: "was given to another executor" in ghost.output, timeout=40.0)
    assert records(client.connection, job) == before
    assert len(job.results()) == 1
    eventually(lambda: len(names_of(client.connection, "ghost")) == 1, timeout=20.0)
    assert here.stop() == 0
    assert envq.get(envq.task(lambda: "works on").enqueue(), timeout=20) == "works on"
    assert client.connection.hgetall(job.key) == before[job.key.encode() if isinstance(job.key, str) else job.key]
