"""What one more executor takes of memory, and how often an idle one asks Redis."""

from __future__ import annotations

import time

from harness.bench import ENVQ, Bench, Series
from harness.processes import Failed, Workers
from harness.redis_server import RedisServer
from harness.results import Goal, Outcome, at_most

_IDLE_S = 10.0
_SETTLE_S = 3.0
_START_WITHIN_S = 60.0


def measure(bench: Bench) -> Outcome:
    pss, commands = Series(), Series()
    by_name: dict[str, float] = {}
    with RedisServer() as server:
        for name in bench.interleaved(["3 executors", "4 executors"]):
            by_name = _observe(bench, server, name, pss, commands)
            bench.say(f"{name}: {pss.median(name):.1f} MiB, {commands.median(name):.2f} commands/s")
    return Outcome(
        goals=[
            at_most("a fourth executor adds, PSS", _added(pss), 15, "MiB"),
            at_most("it adds, idle, commands a second", _added(commands), 2),
            Goal("PSS of a worker with four executors", pss.median("4 executors"), None, "MiB"),
            Goal("commands a second of it, idle", commands.median("4 executors")),
        ],
        figures={
            "PSS MiB": pss.as_figures(),
            "commands a second": commands.as_figures(),
            "commands a second of the last": by_name,
        },
    )


def _added(series: Series) -> float | None:
    three, four = series.median("3 executors"), series.median("4 executors")
    return None if three is None or four is None else four - three


def _observe(bench: Bench, server: RedisServer, name: str, pss: Series, commands: Series) -> dict[str, float]:
    """
    Once all executors have run jobs; the supervisor's memory and commands are the same with three and with four.

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
        sent = server.commands_sent(_IDLE_S)
        commands.add(name, sent.total() / _IDLE_S)
        return {command: count / _IDLE_S for command, count in sent.most_common()}


def _wait_until_idle(server: RedisServer, workers: Workers) -> None:
    end = time.monotonic() + _START_WITHIN_S
    while server.connection("LLEN", "rq:queue:default"):
        if time.monotonic() > end or not workers.alive:
            raise Failed(f"the worker did not empty its queue:\n{workers.log.read_text()[-600:]}")
        time.sleep(0.1)
