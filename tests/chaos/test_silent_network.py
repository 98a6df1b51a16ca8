"""A network that swallows packets: connections stay open, and nothing comes back."""

from __future__ import annotations

from collections.abc import Callable
from operator import neg

import pytest
from support.proxy import CuttingProxy
from support.servers import Server
from support.waiting import eventually
from support.workers import WorkerProcess

import envq

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(120)]

negative = envq.task(neg)


def through(proxy: CuttingProxy, query: str = "") -> str:
    return f"redis://127.0.0.1:{proxy.port}/0{query}"


def test_a_driver_gives_up_with_one_error_and_goes_on_afterwards(server: Server, proxy: CuttingProxy) -> None:
    """The timeout of the test is the bound: without one the call would wait for ever."""
    envq.connect(through(proxy, "?socket_timeout=0.2"), retry_for=0.5)
    job = negative.enqueue(1)
    proxy.swallow()
    with pytest.raises(envq.ServerUnavailable, match=r"cannot reach Redis at redis://.*given up after 0.5 s"):
        negative.enqueue(2)
    with pytest.raises(envq.ServerUnavailable):
        negative.options(job_id="mine").enqueue(2)
    with pytest.raises(envq.GetTimeout):
        envq.get(job, timeout=0.5)
    proxy.swallow(False)
    negative.enqueue(3)
    with server.client() as client:
        assert client.llen("rq:queue:default") == 2


def test_by_default_a_driver_waits_for_a_bounded_time_too(proxy: CuttingProxy) -> None:
    envq.connect(through(proxy))
    negative.enqueue(1)
    proxy.swallow()
    with pytest.raises(envq.ServerUnavailable, match="given up after 5 s"):
        negative.enqueue(2)


def test_get_waits_through_it(server: Server, proxy: CuttingProxy, worker: Callable[..., WorkerProcess]) -> None:
    envq.connect(through(proxy, "?socket_timeout=0.2"))
    job = negative.enqueue(1)
    proxy.swallow()
    running = worker("--burst", "--no-scheduler", url=server.url(), wait=False)
    assert running.wait(30) == 0
    proxy.swallow(False)
    assert envq.get(job, timeout=30) == -1


@pytest.mark.parametrize("busy", [False, True])
def test_a_worker_notices_it_and_goes_on(
    server: Server, proxy: CuttingProxy, worker: Callable[..., WorkerProcess], busy: bool
) -> None:
    """Idle it waits on a move that blocks, busy it has a result to store; neither process is started anew."""
    running = worker("-w", "2", url=through(proxy), executors=2)
    names = running.executors()
    client = envq.connect(server.url())
    started = server.client()
    if busy:
        port = server.port

        def work() -> str:
            import redis

            with redis.Redis(port=port) as gate:
                gate.set("test:begun", 1)
                gate.blpop("test:go-on", 60)
            return "done"

        job = envq.task(work).enqueue()
        eventually(lambda: bool(started.exists("test:begun")))
    proxy.swallow()
    if busy:
        started.rpush("test:go-on", 1)
    else:
        job = negative.enqueue(1)
    eventually(lambda: "cannot reach Redis" in running.output, timeout=60)
    proxy.swallow(False)
    assert envq.get(job, timeout=60) == ("done" if busy else -1)
    assert len(job.results()) == 1
    assert envq.get(negative.enqueue_in(1, 2), timeout=60) == -2
    eventually(lambda: running.executors() == names, timeout=30)
    started.close()
    client.close()
