"""From starting the command of a worker until it runs a job that waits; and the command's help."""

from __future__ import annotations

import subprocess
import time

from harness.bench import ENVQ, Bench, Series
from harness.drains import wait_for_records
from harness.processes import FOLDER, child_env, venv_bin
from harness.redis_server import RedisServer
from harness.results import Goal, Outcome, at_most
from peers.common import read_records

_RQ = "rq:fork"
_TIMES = 3  # in every round


def measure(bench: Bench) -> Outcome:
    first, idle = Series(), Series()
    with RedisServer() as server:
        for _ in range(_TIMES):
            for name in bench.interleaved([ENVQ, _RQ, "rq:simple"]):
                first.add(name, _first_job_ms(bench, server, name))
            for name in bench.interleaved(["envq --help", "rq --help"]):
                idle.add(name, _command_ms(name))
    bench.say(f"first job: {first.median(ENVQ):.0f} ms, {_RQ} {first.median(_RQ):.0f} ms")
    return Outcome(
        goals=[
            at_most("until the first job, ratio to `rq worker`", first.ratio(ENVQ, _RQ), 2, "×"),
            Goal("until the first job", first.median(ENVQ), None, "ms"),
            at_most("`envq --help`", (idle.median("envq --help") or 0) / 1e3, 0.3, "s"),
        ],
        ratios=first.ratios(ENVQ),
        figures={"ms until the first job": first.as_figures(), "ms of a command": idle.as_figures()},
    )


def _first_job_ms(bench: Bench, server: RedisServer, name: str) -> float:
    server.empty()
    records = bench.records()
    bench.produce(server, name, "one", records)
    with bench.workers(server, name, records) as workers:
        wait_for_records(records, 1, workers)
        return (read_records(records)[0].at_ns - workers.spawned_ns) / 1e6


def _command_ms(command: str) -> float:
    program, *arguments = command.split()
    begin = time.monotonic()
    subprocess.run(
        [venv_bin(program) / program, *arguments],
        cwd=FOLDER,
        env=child_env({}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return (time.monotonic() - begin) * 1e3
