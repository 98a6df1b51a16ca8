"""A server that is 2 ms away: throughput, and latency of one job at a time."""

from __future__ import annotations

from harness.bench import ENVQ, Bench, Series
from harness.redis_server import RedisServer
from harness.results import Goal, Outcome, at_most
from rows.latency import LatencySamples

RTT_MS = 2.0
_DRAINED = ("saq:fast", "taskiq:stream-fast", "huey:thread-fast", "dramatiq:t1-prefetch", "rq:simple")
_WAITED = ("celery:solo", "saq:fast", "huey:thread-ttl", "rq:simple")
_SLOW = {"huey:thread-fast": 300, "rq:simple": 60, "dramatiq:t1-prefetch": 600}  # jobs of a drain: one at a time
_TRIAL_JOBS, _MOST_JOBS = 100, 50_000


def measure(bench: Bench) -> Outcome:
    rates = Series()
    with RedisServer(rtt_ms=RTT_MS) as server:
        trial = bench.drain(server, ENVQ, _TRIAL_JOBS).rate  # at this distance
        jobs = int(min(_MOST_JOBS, max(_TRIAL_JOBS, trial * 3 * bench.scale)))
        for name in bench.interleaved([ENVQ, *_DRAINED]):
            n = jobs if name == ENVQ else _SLOW.get(name) or bench.jobs(server, name)
            if drained := bench.attempt(name, bench.drain, server, name, n):
                rates.add(name, drained.rate)
            bench.say(f"{name}: {rates.median(name) or 0:,.0f} jobs/s")
        samples = LatencySamples(bench, server, [ENVQ, *_WAITED], most=60)
    fastest = rates.best(_DRAINED)
    envq = rates.median(ENVQ)
    return Outcome(
        goals=[
            Goal("throughput, ratio to the fastest peer", envq / fastest if envq and fastest else None, 3, "×"),
            at_most("latency until the result is there, p50", samples.ms(ENVQ, 0.5), 8, "ms"),
            Goal("jobs a second", envq),
        ],
        ratios=rates.ratios(ENVQ),
        figures={"jobs a second": rates.as_figures(), "latency ms": samples.as_figures()},
    )
