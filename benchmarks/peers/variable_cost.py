"""What a variable costs inside an executor, without Redis; run with envq's interpreter, prints one line of JSON, in ns.

Runtime, scope and time limits are those of an executor, as ``envq.workers.parts`` puts them together.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager
from time import perf_counter_ns
from typing import Any

from envq.environment import bind, env
from envq.runtime import Callables, Listener, Recipe, Runtime, TimeLimit
from envq.workers.execution.deadline import Deadlines, Work
from envq.workers.execution.scope import ExecutorScope
from envq.workers.execution.threads import Threads
from envq.workers.slot import Phase, Slot

VARIABLES = 10
LOOPS = 10_000
REPEATS = 7


def make() -> list[int]:
    return [0]


def identity(value: list[int]) -> list[int]:
    return value


class ExecutorLimits:
    """An executor's, without its reports."""

    def __init__(self) -> None:
        self._deadlines = Deadlines(Slot(multiprocessing.get_context("fork")))
        self._deadlines.install()

    def limit(self, seconds: float | None, what: str) -> AbstractContextManager[Any]:
        return self._deadlines.limit(seconds, Work(Phase.RESETTING, what), lambda: TimeLimit(what))


def turns(_: Runtime) -> int:
    """What the loops below take by themselves."""
    begin = perf_counter_ns()
    for _turn in range(LOOPS):
        pass
    return perf_counter_ns() - begin


def clocks(_: Runtime) -> int:
    """What looking at the clock takes."""
    took = 0
    for _turn in range(LOOPS):
        begin = perf_counter_ns()
        took += perf_counter_ns() - begin
    return took


def unused(runtime: Runtime) -> int:
    begin = perf_counter_ns()
    for _ in range(LOOPS):
        runtime.begin_job("job")
        runtime.end_job()
    return perf_counter_ns() - begin


def used(runtime: Runtime) -> int:
    begin = perf_counter_ns()
    for _ in range(LOOPS):
        runtime.begin_job("job")
        env.value0  # noqa: B018 - the read is what is measured
        runtime.end_job()
    return perf_counter_ns() - begin


def first_read(runtime: Runtime) -> int:
    took = 0
    for _ in range(LOOPS):
        runtime.begin_job("job")
        begin = perf_counter_ns()
        env.value0  # noqa: B018 - the read is what is measured
        took += perf_counter_ns() - begin
        runtime.end_job()
    return took


def later_read(runtime: Runtime) -> int:
    runtime.begin_job("job")
    env.value0  # noqa: B018 - the first one
    begin = perf_counter_ns()
    for _ in range(LOOPS):
        env.value0  # noqa: B018 - the read is what is measured
    took = perf_counter_ns() - begin
    runtime.end_job()
    return took


def ns(runtime: Runtime, measure: Callable[[Runtime], int], nothing: Callable[[Runtime], int]) -> float:
    """Of one turn, the median of several runs, without what the loop itself takes."""
    took = [measure(runtime) / LOOPS for _ in range(REPEATS)]
    return statistics.median(took) - min(nothing(runtime) / LOOPS for _ in range(REPEATS))


def main() -> None:
    runtime = Runtime(run_coroutine=asyncio.run, listener=Listener(), limits=ExecutorLimits(), cache=vars(env))
    slot = Slot(multiprocessing.get_context("fork"))
    slot.write(Phase.RUNNING, "job", "execution")
    bind(ExecutorScope(runtime, dict, slot.note_read, Threads()))
    names = [f"value{i}" for i in range(VARIABLES)]
    runtime.adopt({name: Recipe(name, 1, 0, name, lambda: Callables(make, identity)) for name in names})
    found = {
        "unused": ns(runtime, unused, turns),
        "used": ns(runtime, used, turns),
        "first read": ns(runtime, first_read, clocks),
        "later read": ns(runtime, later_read, turns),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
