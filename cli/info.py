"""``envq info``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from envq.cli.overview import Overview, read
from envq.cli.printing import print_json, print_table
from envq.cli.readiness import readiness
from envq.cli.render import DECLARATION_HEADERS, brief, declaration_json, declaration_row
from envq.cli.target import opened
from envq.store.connection import safe_url
from envq.store.executor_store import ExecutorView

QUEUE_HEADERS = ("QUEUE", "QUEUED", "STARTED", "FAILED", "SCHEDULED", "DEFERRED", "FINISHED")
EXECUTOR_HEADERS = ("EXECUTOR", "HOST", "PID", "STATE", "MEMORY", "QUEUES", "VARIABLES", "JOB", "SINCE")


def show(url: str | None, namespace: str | None, *, as_json: bool) -> int:
    """Print one reading."""
    with opened(url, namespace) as target:
        overview = read(target)
    if as_json:
        print_json(overview_json(overview, safe_url(target.settings.url), target.settings.namespace))
        return 0
    server = overview.server
    print(f"{server.name} {server.version} at {safe_url(target.settings.url)}, namespace {target.settings.namespace}")
    print(server.durability)
    for warning in server.warnings:
        print(f"warning: {warning}")
    if overview.suspended:
        print("suspended: no worker takes jobs until somebody resumes them (rq resume)")
    _print_tables(overview)
    return 0


def _print_tables(overview: Overview) -> None:
    print()
    queues = [tuple(map(str, asdict(counts).values())) for counts in overview.queues]
    print_table("Queues", QUEUE_HEADERS, queues, empty="no queues")
    print()
    executors = [executor_row(view, overview) for view in overview.executors]
    print_table("Executors", EXECUTOR_HEADERS, executors, empty="no executors")
    print()
    declared = sorted(overview.snapshot.declarations.items())
    rows = [declaration_row(each, readiness(name, overview.snapshot, overview.executors)) for name, each in declared]
    print_table("Variables", DECLARATION_HEADERS, rows, empty="no variables are declared")


def executor_row(view: ExecutorView, overview: Overview) -> tuple[str, ...]:
    """One line of the table of executors."""
    job = overview.running.get(view.info.name)
    variables = ", ".join(
        f"{held.name} v{held.version} {held.state}{': ' + brief(held.error) if held.error else ''}"
        for held in view.variables.values()
    )
    return (
        view.info.name,
        view.info.host,
        str(view.info.pid),
        view.state,
        f"{view.memory.baseline_mib:.0f} MiB {view.memory.grown_mib:+.0f}",
        ", ".join(view.info.queues),
        variables,
        f"{job.description} {job.id}" if job else "",
        job.started_at if job else "",
    )


def overview_json(overview: Overview, url: str, namespace: str) -> dict[str, Any]:
    """The same for programs."""
    return {
        "server": {**asdict(overview.server), "url": url, "namespace": namespace, "suspended": overview.suspended},
        "queues": [asdict(counts) for counts in overview.queues],
        "executors": [_executor_json(view, overview) for view in overview.executors],
        "variables": [
            declaration_json(each, readiness(name, overview.snapshot, overview.executors))
            for name, each in sorted(overview.snapshot.declarations.items())
        ],
    }


def _executor_json(view: ExecutorView, overview: Overview) -> dict[str, Any]:
    job = overview.running.get(view.info.name)
    return {
        **asdict(view.info),
        "state": view.state,
        "memory": asdict(view.memory),
        "job": asdict(job) if job else None,
        "variables": {name: asdict(held) for name, held in view.variables.items()},
    }
