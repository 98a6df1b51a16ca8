"""A connection that is cut in each command of a whole story, on either side: nothing is lost or stored twice."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from operator import neg
from typing import Any

import pytest
from support.proxy import CUT_AFTER, CUT_BEFORE, CUT_INSIDE, CUT_WITHIN, CuttingProxy
from support.servers import Server
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq.driver.client import Client

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

Worker = Callable[..., WorkerProcess]
WHERE = (CUT_BEFORE, CUT_WITHIN, CUT_AFTER, CUT_INSIDE)
COMMANDS = 30  # a story takes more
negative = envq.task(neg)


def through(proxy: CuttingProxy) -> str:
    return f"redis://127.0.0.1:{proxy.port}/0"


def story(name: str) -> list[Any]:
    """What a driver does in a day; the jobs that must have ended once when it is over."""
    value = len(name)

    def read() -> str:
        return str(envq.env.story)

    def shipped(x: int) -> int:
        return x + value

    envq.env.story = envq.EnvironmentVariable(lambda: name, driver="never")
    one, many = negative.enqueue(1), negative.map(range(3))
    by_value, reads = envq.task(shipped).enqueue(1), envq.task(read).enqueue()
    named = negative.options(job_id=f"named-{name}").enqueue(2)
    unique = negative.options(job_id=f"unique-{name}", unique=True).enqueue(3)
    behind = negative.options(depends_on=envq.Dependency([one])).enqueue(4)
    fails = negative.options(retry=envq.Retry(1)).enqueue("text")
    cancelled = negative.options(queue="nobody").enqueue(5)
    cancelled.cancel()
    got = envq.get([one, *many, by_value, named, unique, behind], timeout=60)
    assert got == [-1, 0, -1, -2, 1 + value, -2, -3, -4]
    assert envq.get(reads, timeout=60) == name
    with pytest.raises(envq.JobFailed, match="TypeError"):
        envq.get(fails, timeout=60)
    with pytest.raises(envq.JobCancelled):
        envq.get(cancelled, timeout=60)
    return [one, *many, by_value, reads, named, unique, behind, fails]


def ended_once(jobs: list[Any]) -> None:
    for job in jobs:
        assert len(job.results()) == 1, f"{job!r} has {len(job.results())} results"


def nothing_is_left(server: Server) -> None:
    with server.client() as client:
        left = [key for key in client.scan_iter("*", count=1000) if b":claims:" in key or key.startswith(b"rq:wip:")]
        assert left == []
        assert [client.llen(f"rq:queue:{name}") for name in ("default", "nobody")] == [0, 0]


@pytest.mark.parametrize("where", WHERE)
def test_whichever_command_of_a_driver_is_cut_each_job_ends_once_as_it_should(
    where: str, server: Server, proxy: CuttingProxy, worker: Worker
) -> None:
    worker("-w", "2", "--no-scheduler", "--log-level", "WARNING", url=server.url(), executors=2)
    client = envq.connect(through(proxy), retry_for=30)
    for number in itertools.count(1):
        client.connection.connection_pool.disconnect()
        proxy.cut_at(number, where)
        ended_once(story(f"cut-{number}"))
        if proxy.left:  # it was over before
            break
    assert number > COMMANDS
    eventually(lambda: nothing_is_left(server), timeout=30)


@pytest.mark.parametrize("where", WHERE)
def test_whichever_command_of_a_worker_is_cut_each_job_ends_once_as_it_should(
    where: str, server: Server, proxy: CuttingProxy, worker: Worker
) -> None:
    worker("-w", "1", "--no-scheduler", "--log-level", "WARNING", url=through(proxy))
    envq.connect(server.url(), retry_for=30)
    for number in range(1, COMMANDS):
        proxy.cut_at(number, where)
        ended_once(story(f"cut-{number}"))
    proxy.cut_at(0, where)
    eventually(lambda: nothing_is_left(server), timeout=30)


def test_a_worker_starts_whichever_of_its_first_commands_is_cut(
    server: Server, proxy: CuttingProxy, worker: Worker
) -> None:
    Client(server.url()).check()
    envq.connect(server.url())
    for number in (1, 2, 4, 8, 12, 16, 20, 24):
        proxy.cut_at(number, CUT_AFTER)
        running = worker("--no-scheduler", "--wait-for-server", "30", url=through(proxy), wait=False)
        assert envq.get(negative.enqueue(number), timeout=30) == -number
        running.stop()
