"""All sweeps."""

from __future__ import annotations

from harness.bench import ENVQ, Bench
from harness.redis_server import RedisServer
from peers.peer_envq import VARIABLES
from sweeps.sweep import Sweep

_SECONDS = 2.0  # of one point's drain
_RQ = "rq:simple"
_MOST_PAYLOAD = 100_000_000  # bytes of all jobs of a drain
_LONGEST_RUN_S = 4.0
_FEWEST = 60


def _depth(bench: Bench, name: str, depth: float) -> float:
    with RedisServer() as server:
        first = min(int(depth), bench.jobs(server, name, _SECONDS))
        return bench.drain(server, name, int(depth), first=first).rate


def _executors(bench: Bench, name: str, executors: float) -> float:
    peer, _, work = name.partition(", ")
    count = int(executors)
    with RedisServer() as server:
        if work:
            n = int(1000 * bench.scale) * count
            drained = bench.drain(server, peer, n, processes=count, fn="sleeper", seconds=0.001)
        else:
            drained = bench.drain(server, peer, bench.jobs(server, peer, _SECONDS) * count, processes=count)
        return drained.overlap_rate or drained.rate


def _payload(bench: Bench, name: str, size: float) -> float:
    with RedisServer() as server:
        n = min(bench.jobs(server, name, _SECONDS), max(50, int(_MOST_PAYLOAD * bench.scale / size)))
        return bench.drain(server, name, n, payload=int(size)).rate


def _variables(bench: Bench, name: str, declared: float) -> float:
    with RedisServer() as server:
        env = {VARIABLES: str(int(declared))}
        return bench.drain(server, name, bench.jobs(server, name, _SECONDS), env=env).rate


def _round_trip(bench: Bench, name: str, rtt_ms: float) -> float:
    with RedisServer() as near:
        most = bench.jobs(near, name, _SECONDS)
        if not rtt_ms:
            return bench.drain(near, name, most).rate
    with RedisServer(rtt_ms=rtt_ms) as server:
        trial = bench.drain(server, name, _FEWEST).rate
        return bench.drain(server, name, max(_FEWEST, min(most, int(trial * _SECONDS * bench.scale)))).rate


def _job_length(bench: Bench, name: str, ms: float) -> float:
    with RedisServer() as server:
        n = bench.jobs(server, name, _SECONDS)
        if ms:
            n = max(20, min(n, int(_LONGEST_RUN_S * bench.scale / (ms / 1e3))))
        return bench.drain(server, name, n, fn="sleeper", seconds=ms / 1e3).rate


SWEEPS = (
    Sweep(
        "queue-depth",
        "jobs that wait",
        "jobs in the queue",
        "jobs/s",
        values=(1_000, 10_000, 100_000, 1_000_000),
        quick=(1_000, 10_000),
        curves=(ENVQ,),
        at=_depth,
        x_log=True,
    ),
    Sweep(
        "executor-count",
        "executors on two cores",
        "executors",
        "jobs/s",
        values=(1, 2, 3, 4),
        quick=(1, 2),
        curves=(ENVQ, f"{ENVQ}, jobs of 1 ms"),
        at=_executors,
    ),
    Sweep(
        "payload",
        "size of the argument",
        "bytes",
        "jobs/s",
        values=(10, 100, 1_000, 10_000, 100_000, 1_000_000),
        quick=(10, 10_000, 1_000_000),
        curves=(ENVQ, _RQ),
        at=_payload,
        x_log=True,
    ),
    Sweep(
        "variable-count",
        "declared variables that jobs do not read, and one that they do",
        "variables",
        "jobs/s",
        values=(0, 1, 10, 30, 100),
        quick=(0, 100),
        curves=(ENVQ, "envq:variable:trivial"),
        at=_variables,
    ),
    Sweep(
        "round-trip",
        "distance of the server",
        "ms there and back",
        "jobs/s",
        values=(0, 0.5, 1, 2, 5),
        quick=(0, 2),
        curves=(ENVQ, "saq:fast", _RQ),
        at=_round_trip,
    ),
    Sweep(
        "job-length",
        "length of a job",
        "ms asleep",
        "jobs/s",
        values=(0, 0.1, 1, 10, 100),
        quick=(0, 1, 10),
        curves=(ENVQ, _RQ),
        at=_job_length,
    ),
)
