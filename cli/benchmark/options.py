"""What ``envq bench`` was asked for, and how much work that means; light, for the signature needs it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

HELD_BYTES: Final = 128 * 1024 * 1024  # of payloads in Redis at a time, where nobody has asked for more
WARM_UP: Final = 200  # jobs, before what is measured
WARM_UP_S: Final = 1.0


class VariableUse(StrEnum):
    """What becomes of the variable that each job reads."""

    IDENTITY = "identity"  # nobody changes it
    RESET = "reset"  # each job changes it, and a trivial function puts it back
    REBUILD = "rebuild"  # each job changes it, and it is built again


@dataclass(frozen=True)
class BenchOptions:
    """The flags; None for what was not given."""

    url: str | None
    namespace: str | None
    executors: int | None
    worker: bool
    queue: str | None
    jobs: int | None
    quick: bool
    job_ms: float
    payload: int
    variable: VariableUse | None
    rtt_ms: float
    log_level: str
    json: bool


@dataclass(frozen=True)
class Plan:
    """At most so many of each kind, in about so many seconds each; ``fixed``: drain so many, however long."""

    jobs: int
    one_by_one: int
    samples: int
    seconds: float
    fixed: bool

    def drained(self, jobs_per_s: float) -> int:
        """How many jobs to drain where so many run in a second."""
        return self.jobs if self.fixed else max(1, min(self.jobs, round(jobs_per_s * self.seconds)))

    def warm_up(self, executors: int, job_s: float) -> int:
        """How many jobs to run before, where one alone takes so long."""
        return max(1, min(self.jobs, round(min(WARM_UP, WARM_UP_S / job_s) * executors)))


def plan(options: BenchOptions) -> Plan:
    """The sizes for these flags."""
    jobs, one_by_one, samples, seconds = (2_000, 300, 100, 1.5) if options.quick else (30_000, 3_000, 500, 6.0)
    if options.jobs is not None:
        return Plan(options.jobs, min(one_by_one, options.jobs), min(samples, options.jobs), seconds, fixed=True)
    held = max(1, HELD_BYTES // options.payload) if options.payload else jobs
    return Plan(min(jobs, held), min(one_by_one, held), samples, seconds, fixed=False)
