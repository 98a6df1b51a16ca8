"""What one more executor takes of memory, and how often an idle one asks Redis."""

from __future__ import annotations

import time

from harness.bench import ENVQ, Bench, Series
from harness.processes import Failed, Workers
from harness.redis_server import RedisServer
from harness.results import Goal, Outcome, at_most

_IDLE_S = 20.0
_SETTLE_S = 3.0
_START_WITHIN_S = 60.0


def measure(bench: Bench) -> Outcome:
    pss, commands = Series(), Series()
    by_name: dict[str, float] = {}
    with RedisServer() as server:
        for name in bench.interleaved(["3 executors", "4 executors"]):
            by_name = _observe(bench, server, name, pss, commands)
            bench.say(f"{name}: {pss.median(name):.1f} MiB, {commands.median(name):.2f} commands/s each")
    three, four = pss.median("3 executors") or 0.0, pss.median("4 executors") or 0.0
    return Outcome(
        goals=[
            at_most("a fourth executor adds, PSS", four - three, 15, "MiB"),
            at_most("commands a second of an idle executor", commands.median("4 executors"), 2),
            Goal("PSS of a worker with four executors", four, None, "MiB"),
        ],
        figures={
            "PSS MiB": pss.as_figures(),
            "commands a second and executor": commands.as_figures(),
            "commands a second of four idle executors and their supervisor": by_name,
        },
    )


def _observe(bench: Bench, server: RedisServer, name: str, pss: Series, commands: Series) -> dict[str, float]:
    """
    All executors have run jobs; the supervisor's commands are shared out among them.

    Returns commands a second by name.
    """
    executors = int(name[0])
    server.empty()
    records = bench.records()
    bench.produce(server, ENVQ, "bulk", records, n=200 * executors)
    with bench.workers(server, ENVQ, records, executors) as workers:
        _wait_until_idle(server, workers)
        time.sleep(_SETTLE_S)
        pss.add(name, workers.memory().pss_kib / 1024)
        server.connection("CONFIG", "RESETSTAT")
        begin = time.monotonic()
        time.sleep(_IDLE_S * bench.scale)
        took = time.monotonic() - begin
        found = {command: each.calls / took for command, each in server.connection.command_stats().items()}
        commands.add(name, sum(found.values()) / executors)
        return found


def _wait_until_idle(server: RedisServer, workers: Workers) -> None:
    end = time.monotonic() + _START_WITHIN_S
    while server.connection("LLEN", "rq:queue:default"):
        if time.monotonic() > end or not workers.alive:
            raise Failed(f"the worker did not empty its queue:\n{workers.log.read_text()[-600:]}")
        time.sleep(0.1)
