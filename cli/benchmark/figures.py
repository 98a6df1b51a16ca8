"""The figures of a run, and how they come from what was measured. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of them do not exceed."""
    ranked = sorted(values)
    return ranked[max(1, math.ceil(len(ranked) * percent / 100)) - 1]


@dataclass(frozen=True)
class Rate:
    """So many jobs in so many seconds."""

    jobs: int
    seconds: float

    @property
    def jobs_per_s(self) -> float:
        """Jobs a second; 0 where the clock saw no time pass."""
        return self.jobs / self.seconds if self.seconds > 0 else 0.0

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {"jobs": self.jobs, "seconds": round(self.seconds, 4), "jobs_per_s": round(self.jobs_per_s, 1)}


@dataclass(frozen=True)
class Latency:
    """What was waited for, again and again."""

    samples: int
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency:
        """From each wait, of which there is at least one."""
        return cls(len(seconds), percentile(seconds, 50) * 1000, percentile(seconds, 99) * 1000)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {"samples": self.samples, "p50_ms": round(self.p50_ms, 3), "p99_ms": round(self.p99_ms, 3)}


@dataclass(frozen=True)
class Load:
    """What the server spent on one job; None and empty for what it does not tell us."""

    cpu_us: float | None = None
    commands: dict[str, float] | None = None  # by name, those inside scripts too

    @property
    def commands_in_all(self) -> float | None:
        """How many commands a job takes."""
        return None if self.commands is None else sum(self.commands.values())

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        total = self.commands_in_all
        by_name = sorted((self.commands or {}).items(), key=lambda item: (-item[1], item[0]))
        return {
            "redis_cpu_us_per_job": None if self.cpu_us is None else round(self.cpu_us, 2),
            "commands_per_job": None if total is None else round(total, 2),
            "commands": None if self.commands is None else {name: round(calls, 3) for name, calls in by_name},
        }


@dataclass(frozen=True)
class Drain:
    """Jobs that lay ready, run by so many executors."""

    executors: int
    rate: Rate
    load: Load

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {"executors": self.executors, **self.rate.to_json(), **self.load.to_json()}


@dataclass(frozen=True)
class Figures:
    """All that one run measures."""

    round_trip: Latency
    one_by_one: Rate
    bulk: Rate
    latency: Latency
    drains: list[Drain]

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "round_trip": self.round_trip.to_json(),
            "enqueue_one_by_one": self.one_by_one.to_json(),
            "enqueue_in_bulk": self.bulk.to_json(),
            "latency": self.latency.to_json(),
            "drain": [drain.to_json() for drain in self.drains],
        }
