"""What variables cost: in nanoseconds inside a process, and from end to end."""

from __future__ import annotations

from harness.bench import Bench, Series
from harness.processes import child_env, run_json, venv_bin
from harness.redis_server import RedisServer
from harness.results import Goal, Outcome, at_most

NONE, IDENTITY, TRIVIAL = "envq:variable:none", "envq:variable:identity", "envq:variable:trivial"
_INSIDE_WITHIN_S = 120.0


def measure(bench: Bench) -> Outcome:
    rates = Series()
    with RedisServer() as server:
        for name in bench.interleaved([NONE, IDENTITY, TRIVIAL]):
            rates.add(name, bench.drain(server, name, bench.jobs(server, name)).rate)
            bench.say(f"{name}: {rates.median(name):,.0f} jobs/s")
    inside = Series()
    for _ in range(bench.rounds):
        argv = [venv_bin("envq") / "python", "-m", "peers.variable_cost"]
        for name, value in run_json(argv, child_env({}), _INSIDE_WITHIN_S).items():
            inside.add(name, value)
    return Outcome(
        goals=[
            Goal("rate if each job reads one, identity reset", rates.ratio(IDENTITY, NONE), 0.9, "×"),
            Goal("the same, trivial reset", rates.ratio(TRIVIAL, NONE), 0.8, "×"),
            at_most("a job that uses none of 10", _us(inside, "unused"), 1, "µs"),
            at_most("a job that uses one, without the user's reset", _us(inside, "used"), 5, "µs"),
            at_most("first read in a job", _us(inside, "first read"), 1, "µs"),
            at_most("later reads", inside.median("later read"), 150, "ns"),
        ],
        figures={"jobs a second": rates.as_figures(), "ns": inside.as_figures()},
    )


def _us(series: Series, name: str) -> float | None:
    ns = series.median(name)
    return None if ns is None else ns / 1e3
