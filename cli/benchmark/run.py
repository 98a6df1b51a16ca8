"""The run from end to end: what it is told, what it finds, what it prints."""

from __future__ import annotations

import secrets
import sys
from dataclasses import asdict
from typing import Any, Final

import typer

from envq.cli import mistakes, signals
from envq.cli.benchmark import machine, server_load, stage
from envq.cli.benchmark.delay import check_delayable, delayed
from envq.cli.benchmark.measuring import Measurement
from envq.cli.benchmark.options import BenchOptions, plan
from envq.cli.benchmark.report import HEADERS, Report, heading, rows
from envq.cli.printing import print_json, print_table
from envq.cli.target import opened
from envq.driver.client import connect
from envq.errors import ConfigurationError
from envq.settings import Settings
from envq.store.connection import ServerFacts, safe_url, server_facts

MARK: Final = "envq-bench-"


def run(options: BenchOptions) -> int:
    """Measure and print; the exit code."""
    check_flags(options)
    signals.unwind_on_sigterm()
    try:
        report = measured(options)
    except signals.Stopped:
        return mistakes.EXIT_INTERRUPTED
    for warning in report.warnings:
        print(f"envq: warning: {warning}", file=sys.stderr)
    if options.json:
        print_json(report.to_json())
        return mistakes.EXIT_OK
    for line in heading(report):
        print(line)
    print()
    print_table("Figures", HEADERS, rows(report.figures), empty="nothing was measured")
    return mistakes.EXIT_OK


def check_flags(options: BenchOptions) -> None:
    """Raise BadParameter for flags that do not go together."""
    if not options.worker and not options.queue:
        raise typer.BadParameter("--no-worker needs the queue of the workers to measure: add --queue NAME")
    if options.worker and options.queue:
        raise typer.BadParameter("--queue goes with --no-worker: a worker of its own has a queue of its own")
    if not options.worker and options.executors:
        raise typer.BadParameter("--executors is for a worker of its own; leave it out with --no-worker")


def check_sizes(options: BenchOptions, settings: Settings) -> None:
    """Raise ConfigurationError for what cannot be sent, or cannot be delayed."""
    if options.payload >= settings.limits.max_bytes:
        raise ConfigurationError(
            f"--payload {options.payload}: a job's arguments may take {settings.limits.max_bytes} bytes "
            "(ENVQ_MAX_PAYLOAD_BYTES)"
        )
    if options.rtt_ms:
        check_delayable(settings.url)


def measured(options: BenchOptions) -> Report:
    """Everything that is printed; what was started and made is gone when this returns or raises."""
    mark = MARK + secrets.token_hex(4)
    # A namespace of its own, so that its worker builds no variable of the deployment, whose events stay as they are.
    with opened(options.url, mark if options.worker else options.namespace) as target:
        check_sizes(options, target.settings)
        facts = server_facts(target.connection, target.settings.url, target.settings.url_source)
        stage.check_deployment(target)
        company = server_load.company(target.connection, workers_run=not options.worker)
        with delayed(target.settings.url, options.rtt_ms) as url:
            client = connect(url, namespace=target.settings.namespace, driver="never")
            staged = stage.own if options.worker else stage.running
            with staged(options, mark, target, client) as all_there:
                figures = Measurement(client, target.connection, all_there, plan(options), _tell).run()
            client.close()
        shown = safe_url(target.settings.url)
    versions = machine.versions() | {"server": {"name": facts.name, "version": facts.version}}
    warnings = [company] if company else []
    settings = settings_json(options, shown, target.settings.namespace, facts)
    return Report(machine.machine(), versions, settings, figures, warnings)


def settings_json(options: BenchOptions, url: str, namespace: str, facts: ServerFacts) -> dict[str, Any]:
    """The flags as they were used, and what they worked on."""
    given = asdict(options)
    for name in ("url", "namespace", "json"):
        del given[name]
    if options.worker:
        given |= {"executors": options.executors or stage.DEFAULT_EXECUTORS, "queue": stage.OWN_QUEUE}
    return {"url": url, "namespace": namespace, "durability": facts.durability, **given}


def _tell(what: str) -> None:
    if sys.stderr.isatty():
        print(f"envq: {what}", file=sys.stderr)
