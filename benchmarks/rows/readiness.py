"""From the declaration of a variable with a trivial initializer until a hundred executors hold it."""

from __future__ import annotations

import contextlib
import time

from harness.bench import ENVQ, Bench, Series
from harness.processes import Failed, Subject, run_json, subject_env
from harness.redis_server import RedisServer
from harness.results import Outcome, at_most

_WORKERS, _EXECUTORS = 4, 25
_READY_WITHIN_S = 180.0


def measure(bench: Bench) -> Outcome:
    seconds = Series()
    total = _WORKERS * _EXECUTORS
    with RedisServer() as server, contextlib.ExitStack() as stack:
        records = bench.records()
        for _ in range(_WORKERS):
            stack.enter_context(bench.workers(server, ENVQ, records, _EXECUTORS))
        _wait_for_executors(server, total)
        subject = Subject.of(ENVQ, server.url())
        argv = [subject.bin / "python", "-m", "peers.declare", total, 3 * bench.rounds]
        for value in run_json(argv, subject_env(subject, records, {}), _READY_WITHIN_S)["seconds"]:
            seconds.add(ENVQ, value)
    bench.say(f"{total} executors: {seconds.median(ENVQ):.2f} s")
    return Outcome(
        goals=[at_most(f"{total} executors in {_WORKERS} workers on this machine", seconds.median(ENVQ), 1, "s")],
        figures={"seconds": seconds.as_figures()},
    )


def _wait_for_executors(server: RedisServer, n: int) -> None:
    """Each is a worker to RQ's tools."""
    end = time.monotonic() + _READY_WITHIN_S
    while server.connection("SCARD", "rq:workers") < n:
        if time.monotonic() > end:
            raise Failed(f"{server.connection('SCARD', 'rq:workers')} of {n} executors came")
        time.sleep(0.2)
