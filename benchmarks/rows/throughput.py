"""No-op jobs a second of one worker with one executor, against peers and the floor."""

from __future__ import annotations

from harness.bench import ENVQ, FASTEST, Bench, Series
from harness.processes import child_env, run_json, venv_bin
from harness.redis_server import RedisServer
from harness.results import Goal, Outcome

FLOOR = "floor"
_FLOOR_JOBS = 25_600
_FLOOR_WITHIN_S = 120.0


def measure(bench: Bench) -> Outcome:
    rates, redis_us, worker_us, commands = Series(), Series(), Series(), Series()
    peers = [*FASTEST, "rq:simple", "rq:fork"]
    with RedisServer() as server:
        for name in bench.interleaved([ENVQ, "envq:quiet", *peers, FLOOR]):
            if name == FLOOR:
                rates.add(name, _floor(server))
            elif drained := bench.attempt(name, bench.drain, server, name, bench.jobs(server, name)):
                rates.add(name, drained.rate)
                redis_us.add(name, drained.redis_us)
                worker_us.add(name, drained.worker_us)
                commands.add(name, drained.commands_per_job)
            bench.say(f"{name}: {rates.median(name) or 0:,.0f} jobs/s")
    envq, fastest = rates.median(ENVQ), rates.best(FASTEST)
    return Outcome(
        goals=[
            Goal("ratio to the fastest peer", envq / fastest if envq and fastest else None, 5, "×"),
            Goal("ratio to `rq.SimpleWorker`", rates.ratio(ENVQ, "rq:simple"), 30, "×"),
            Goal("ratio to `rq worker`", rates.ratio(ENVQ, "rq:fork"), 200, "×"),
            Goal("share of the floor", rates.ratio(ENVQ, FLOOR), 0.25),
            Goal("jobs a second", envq),
            Goal("jobs a second with `--quiet`", rates.median("envq:quiet")),
        ],
        ratios=rates.ratios(ENVQ),
        figures={
            "jobs a second": rates.as_figures(),
            "Redis CPU µs a job": redis_us.as_figures(),
            "worker CPU µs a job": worker_us.as_figures(),
            "Redis commands a job": commands.as_figures(),
        },
    )


def _floor(server: RedisServer) -> float:
    argv = [venv_bin(FLOOR) / "python", "-m", "peers.floor", server.port, "raw-batched", _FLOOR_JOBS]
    return run_json(argv, child_env({}), _FLOOR_WITHIN_S)["rate"]
