"""All rows, in the order of the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.bench import Bench
from harness.results import Outcome
from rows import (
    backlog,
    distance,
    enqueuing,
    executors,
    footprint,
    latency,
    readiness,
    recovery,
    startup,
    throughput,
    variables,
)


@dataclass(frozen=True)
class Row:
    """
    One measurement.

    Args:
        name: what ``run.py`` is called with.
        title: what the table calls it.
        measure: does it; a whole run of all rows takes about 20 minutes.
    """

    name: str
    title: str
    measure: Callable[[Bench], Outcome]


ROWS = (
    Row("throughput", "no-op jobs, one executor", throughput.measure),
    Row("variables", "cost of variables", variables.measure),
    Row("executors", "two executors", executors.measure),
    Row("distance", "2 ms between worker and Redis", distance.measure),
    Row("enqueue", "enqueuing", enqueuing.measure),
    Row("latency", "one job on an idle worker, until its result is in the producer", latency.measure),
    Row("readiness", "declaration until ready on 100 executors", readiness.measure),
    Row("backlog", "a long backlog", backlog.measure),
    Row("startup", "start", startup.measure),
    Row("footprint", "memory and commands of executors that idle", footprint.measure),
    Row("recovery", "SIGKILL until the job runs again", recovery.measure),
)
