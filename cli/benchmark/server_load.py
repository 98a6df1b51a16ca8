"""What the server says of its own work: processor time, commands, and whether others use it too."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final, cast

import redis

from envq.cli.benchmark.figures import Load
from envq.cli.render import plural

LOOK_S: Final = 0.5  # how long to watch what others send before anything of ours runs
_OURS: Final = "info"  # nobody but the measurement itself sends it
_STATISTICS: Final = "cmdstat_"


@dataclass(frozen=True)
class Reading:
    """Sums since the server's start; None for what we may not know."""

    cpu_s: float | None
    calls: dict[str, int] | None


def before(control: redis.Redis) -> Reading:
    """Just before the work: the processor's time last."""
    calls = _calls(control)
    return Reading(_cpu_s(control), calls)


def after(control: redis.Redis) -> Reading:
    """Just after it: the processor's time first."""
    cpu_s = _cpu_s(control)
    return Reading(cpu_s, _calls(control))


def load(start: Reading, end: Reading, jobs: int) -> Load:
    """What each of so many jobs took between two readings."""
    cpu_us = None
    if start.cpu_s is not None and end.cpu_s is not None:
        cpu_us = max(0.0, end.cpu_s - start.cpu_s) * 1e6 / jobs
    if start.calls is None or end.calls is None:
        return Load(cpu_us)
    made = {name: calls - start.calls.get(name, 0) for name, calls in end.calls.items() if name != _OURS}
    return Load(cpu_us, {name: calls / jobs for name, calls in made.items() if calls > 0})


def company(control: redis.Redis, *, workers_run: bool) -> str:
    """
    One sentence where others are connected to the server too, else ""; asked before anything of ours runs.

    Args:
        workers_run: those that are measured run already, and are counted
    """
    clients = _number(control, "clients", "connected_clients")
    first = _number(control, "stats", "total_commands_processed")
    time.sleep(LOOK_S)
    second = _number(control, "stats", "total_commands_processed")
    if clients is None or first is None or second is None:
        return ""
    others = clients - 1, (second - first - 1) / LOOK_S  # without us, and without our question
    return described(*others, workers_run=workers_run)


def described(clients: int, commands_per_s: float, *, workers_run: bool) -> str:
    """The sentence for so many other clients, which send so much."""
    if clients <= 0 and commands_per_s <= 0:
        return ""
    among = ", the measured workers among them" if workers_run else ""
    return (
        f"the server also serves others ({plural(max(clients, 0), 'client')}{among}, {max(commands_per_s, 0):,.0f} "
        "commands a second before the first measurement): what they send is counted in Redis's CPU and commands per job"
    )


def _cpu_s(control: redis.Redis) -> float | None:
    found = _section(control, "cpu")
    if "used_cpu_user" not in found or "used_cpu_sys" not in found:
        return None
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def _calls(control: redis.Redis) -> dict[str, int] | None:
    found = _section(control, "commandstats")
    calls = {
        name.removeprefix(_STATISTICS): int(value["calls"])
        for name, value in found.items()
        if name.startswith(_STATISTICS)
    }
    return calls or None


def _number(control: redis.Redis, section: str, name: str) -> int | None:
    value = _section(control, section).get(name)
    return None if value is None else int(value)


def _section(control: redis.Redis, name: str) -> dict[str, Any]:
    """One section of INFO; empty where the user may not ask, or the server has none."""
    try:
        return cast(dict[str, Any], cast(Any, control).info(name))
    except redis.ResponseError:
        return {}
