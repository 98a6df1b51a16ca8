"""A worker vanishes with its host at the very moment at which the server has acted and nobody has heard of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from rq import Queue
from rq.job import Dependency
from support.proxy import CUT_AFTER, CuttingProxy
from support.servers import Server
from support.waiting import eventually
from support.workers import WorkerProcess

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(120)]

LEASE = ("--lease", "2", "--no-scheduler")


@pytest.mark.parametrize("fails", [True, False])
def test_dependents_of_a_job_whose_end_was_stored_just_then_run(
    own_server: Callable[..., Server], worker: Callable[..., WorkerProcess], fails: bool
) -> None:
    server = own_server()
    proxy = CuttingProxy(server.port)
    stored, gone = threading.Event(), threading.Event()
    proxy.before_cut = lambda: (stored.set(), gone.wait(30))
    with server.client() as client:
        queue = Queue(connection=client)
        parent = queue.enqueue("math.sqrt", -1 if fails else 4)
        child = queue.enqueue("math.sqrt", 4, depends_on=Dependency(parent, allow_failure=True))
        client.lrem(queue.key, 1, parent.id)
        first: Any = worker(*LEASE, url=proxy.url)
        proxy.cut(f"rq:results:{parent.id}".encode(), CUT_AFTER, times=1)
        client.rpush(queue.key, parent.id)
        assert stored.wait(30)
        assert parent.get_status() == ("failed" if fails else "finished")
        first.kill()
        gone.set()
        worker(*LEASE, url=server.url())
        eventually(lambda: child.get_status() == "finished", timeout=60.0)
    proxy.close()
