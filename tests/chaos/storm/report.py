"""The figures of a storm: as a table for a terminal, as JSON, and in docs/guarantees.md."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

from chaos.storm.plan import Plan

ROOT: Final = Path(__file__).parents[3]
RESULTS: Final = ROOT / "tests" / "chaos" / "results" / "storm.json"
PAGE: Final = ROOT / "docs" / "guarantees.md"
BEGIN: Final = "<!-- storm: written by `make chaos PUBLISH=1` -->"
END: Final = "<!-- storm: end -->"

_OF_JOBS: Final = (
    "effects",
    "doubled effects",
    "results stored",
    "WorkerLost",
    "dirty reads",
    "reads of a variable that could not be built",
    "on_crash=fail jobs",
    "on_crash=fail jobs that failed with WorkerLost",
    "on_crash=fail jobs that ran twice",
)


def figures(plan: Plan, weather: Counter[str], verdict: Counter[str]) -> dict[str, Any]:
    """Named as they are shown."""
    declared = sum(count for name, count in weather.items() if name.startswith(("declare", "remove")))
    return {
        "seed": plan.seed,
        "jobs": len(plan.orders),
        "executors killed": weather["executors killed"] + weather["pause and kill"],
        "schedulers and starting executors killed": weather["schedulers and newborn killed"],
        "supervisors killed": weather["kill a supervisor"],
        "whole workers killed": weather["lose a worker"],
        "all workers killed while a reply was on its way": weather["workers lost at a reply"],
        "workers frozen beyond their lease": weather["freeze a worker"],
        "workers replaced by SIGTERM": weather["roll"],
        "server restarts": weather["kill the server"] + weather["shut the server down"],
        "of them by SIGKILL": weather["kill the server"],
        "server hung for seconds": weather["hang the server"],
        "connections cut, or their reply lost": weather["connections cut"],
        "connections of the driver cut": weather["enqueues cut"],
        "CLIENT KILL": weather["kill a client"] + weather["kill all clients"],
        "SCRIPT FLUSH": weather["flush scripts"],
        "declarations changed": declared,
        **{name: verdict[name] for name in _OF_JOBS},
    }


def table(numbers: dict[str, Any]) -> str:
    """For a terminal."""
    width = max(map(len, numbers))
    return "\n".join(f"{name:{width}}  {value}" for name, value in numbers.items())


def markdown(numbers: dict[str, Any]) -> str:
    """For the page; also what a test compares it with."""
    return "\n".join(["| | |", "|---|--:|", *(f"| {name} | {value} |" for name, value in numbers.items())])


def publish(numbers: dict[str, Any]) -> None:
    """Keep the figures, and show them on the page."""
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(numbers, indent=2) + "\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{markdown(numbers)}\n\n{END}{rest.partition(END)[2]}")
