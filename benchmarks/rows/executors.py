"""Two executors against one where jobs take a millisecond, and what no-ops cost Redis with either."""

from __future__ import annotations

from harness.bench import ENVQ, Bench, Series
from harness.redis_server import RedisServer
from harness.results import Goal, Outcome, at_most

_JOB_S = 0.001  # asleep, so that two executors do not compete for the cores with Redis
_LONGEST = 1000.0  # jobs a second that one executor can reach at all


def measure(bench: Bench) -> Outcome:
    rates, noops, redis_us = Series(), Series(), Series()
    n = int(3 * min(_LONGEST, 500) * bench.scale)
    with RedisServer() as server:
        jobs = bench.jobs(server, ENVQ)
        for name in bench.interleaved(["1 executor", "2 executors"]):
            count = int(name[0])
            drained = bench.drain(server, ENVQ, n * count, processes=count, fn="sleeper", seconds=_JOB_S)
            rates.add(name, drained.overlap_rate or drained.rate)
            drained = bench.drain(server, ENVQ, jobs * count, processes=count)
            noops.add(name, drained.overlap_rate or drained.rate)
            redis_us.add(name, drained.redis_us)
            bench.say(f"{name}: {rates.median(name):,.0f} jobs of 1 ms, {noops.median(name):,.0f} no-ops a second")
    return Outcome(
        goals=[
            Goal("jobs of 1 ms, ratio to one executor", rates.ratio("2 executors", "1 executor"), 1.9, "×"),
            at_most("Redis CPU for a no-op, one executor", redis_us.median("1 executor"), 35, "µs"),
            at_most("Redis CPU for a no-op, two executors", redis_us.median("2 executors"), 35, "µs"),
            Goal("no-ops, ratio to one executor", noops.ratio("2 executors", "1 executor"), None, "×"),
        ],
        figures={
            "jobs of 1 ms a second": rates.as_figures(),
            "no-ops a second": noops.as_figures(),
            "Redis CPU µs a no-op": redis_us.as_figures(),
        },
    )
