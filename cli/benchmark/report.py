"""What a run prints: one JSON document, or rows of a table. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from envq.cli.benchmark.figures import Drain, Figures, Latency
from envq.cli.render import plural, size
from envq.settings import MIB

HEADERS: Final = ("MEASUREMENT", "JOBS", "RESULT", "REDIS CPU/JOB", "COMMANDS/JOB")
NOT_TOLD: Final = "not told"  # the user may not INFO


@dataclass(frozen=True)
class Report:
    """A run from end to end."""

    machine: dict[str, Any]
    versions: dict[str, Any]
    settings: dict[str, Any]
    figures: Figures
    warnings: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """The document."""
        return {
            "machine": self.machine,
            "versions": self.versions,
            "settings": self.settings,
            "figures": self.figures.to_json(),
            "warnings": list(self.warnings),
        }


def heading(report: Report) -> list[str]:
    """What was measured where, a line each."""
    machine, versions, settings = report.machine, report.versions, report.settings
    server = versions["server"]
    names = {"envq": "envq", "rq": "rq", "redis_py": "redis-py", "hiredis": "hiredis"}
    packages = ", ".join(f"{shown} {versions[name]}" for name, shown in names.items() if versions[name])
    return [
        f"{server['name']} {server['version']} at {settings['url']}; {settings['durability']}",
        f"{packages}, {versions['python']}",
        f"{machine['cpu']}, {plural(machine['cores'], 'core')}, {size(machine['memory_mib'] * MIB)}, {machine['os']}",
        job_line(settings),
    ]


def job_line(settings: dict[str, Any]) -> str:
    """What each job does, and who runs it."""
    does = f"takes {settings['job_ms']:g} ms" if settings["job_ms"] else "does nothing"
    reads = f", reads a variable ({settings['variable']})" if settings["variable"] else ""
    sent = f", is sent {size(settings['payload'])}" if settings["payload"] else ""
    where = "a worker of its own" if settings["worker"] else f"the workers of queue {settings['queue']}"
    whose = "" if settings["worker"] else " of the producer"
    away = f"; every round trip{whose} takes {settings['rtt_ms']:g} ms longer" if settings["rtt_ms"] else ""
    return f"each job {does}{reads}{sent}; run by {where}{away}"


def rows(figures: Figures) -> list[tuple[str, ...]]:
    """The table."""
    return [
        ("round trip to the server", "", waits(figures.round_trip), "", ""),
        ("enqueue one by one", str(figures.one_by_one.jobs), per_second(figures.one_by_one.jobs_per_s), "", ""),
        ("enqueue in bulk", str(figures.bulk.jobs), per_second(figures.bulk.jobs_per_s), "", ""),
        ("latency on an idle worker", str(figures.latency.samples), waits(figures.latency), "", ""),
        *(_drain_row(drain) for drain in figures.drains),
    ]


def per_second(rate: float) -> str:
    """A rate for people."""
    return f"{rate:,.0f} jobs/s" if rate >= 100 else f"{rate:.3g} jobs/s"


def waits(latency: Latency) -> str:
    """Percentiles for people."""
    return f"p50 {latency.p50_ms:.2f} ms, p99 {latency.p99_ms:.2f} ms"


def _drain_row(drain: Drain) -> tuple[str, ...]:
    cpu_us, commands = drain.load.cpu_us, drain.load.commands_in_all
    return (
        f"drain, {plural(drain.executors, 'executor')}",
        str(drain.rate.jobs),
        per_second(drain.rate.jobs_per_s),
        NOT_TOLD if cpu_us is None else f"{cpu_us:.1f} us",
        NOT_TOLD if commands is None else f"{commands:.1f}",
    )
