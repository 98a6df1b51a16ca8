"""The rate with a million jobs waiting against that with ten thousand, and the memory of a job that waits."""

from __future__ import annotations

from harness.bench import ENVQ, Bench, Series
from harness.redis_server import RedisServer
from harness.results import Goal, Outcome, at_most

SHORT, LONG, LONG_QUICK = 10_000, 1_000_000, 100_000
_RQ = "rq:simple"
_MEMORY_JOBS = 10_000


def measure(bench: Bench) -> Outcome:
    rates, memory = Series(), Series()
    long = LONG_QUICK if bench.quick else LONG
    with RedisServer() as server:
        watched = min(SHORT, bench.jobs(server, ENVQ))
        for _ in range(bench.rounds):
            rates.add("short", bench.drain(server, ENVQ, SHORT, first=watched).rate)
        rates.add("long", bench.drain(server, ENVQ, long, first=watched).rate)
        bench.say(f"{rates.median('short'):,.0f} jobs/s of {SHORT:,}, {rates.median('long'):,.0f} of {long:,}")
        for name in (ENVQ, _RQ):
            memory.add(name, memory_of_a_job(bench, server, name))
    return Outcome(
        goals=[
            Goal(f"rate with {long:,} jobs, ratio to {SHORT:,}", rates.ratio("long", "short"), 0.7, "×"),
            at_most("Redis memory of a job, ratio to RQ's", memory.ratio(ENVQ, _RQ), 1, "×"),
            Goal("Redis memory of a job", memory.median(ENVQ), None, "bytes"),
        ],
        ratios={f"{_RQ} (memory)": memory.ratio(ENVQ, _RQ) or 0.0},
        figures={"jobs a second": rates.as_figures(), "bytes a job": memory.as_figures()},
    )


def memory_of_a_job(bench: Bench, server: RedisServer, name: str) -> float:
    """Bytes, from what the server says before and after enqueuing."""
    server.empty()
    before = server.connection.memory_bytes()
    bench.produce(server, name, "bulk", n=_MEMORY_JOBS)
    return (server.connection.memory_bytes() - before) / _MEMORY_JOBS
