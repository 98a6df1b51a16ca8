"""``envq dev`` and ``envq demo``: signatures only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envq.cli import signals
from envq.cli.options import Debug, DemoOptions, Json, LogLevel, Namespace, Workers, flag


def dev(
    script: Annotated[
        Path | None, typer.Argument(metavar="SCRIPT", help="A driver to run; envq dev ends with its exit code.")
    ] = None,
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="The script's arguments.")] = None,
    workers: Workers = 2,
    queue: Annotated[
        list[str] | None, flag("--queue -q", "A queue; may be repeated.", metavar="NAME", envvar="ENVQ_QUEUES")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="PORT", min=1, max=65535, show_default="a free one", help="Of the server."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", metavar="FOLDER", show_default="nothing is kept", help="Keep Redis's data there."),
    ] = None,
    namespace: Namespace = None,
    log_level: Annotated[
        LogLevel, flag("--log-level -l", "Least level that workers log.", case_sensitive=False)
    ] = LogLevel.WARNING,
    debug: Debug = False,
) -> int:
    """Start a Redis server and workers for developing, and stop both at the end.

    On a terminal: a Python prompt with envq connected. With SCRIPT: runs it. Else: waits for Ctrl-C or SIGTERM.
    What jobs print appears as whole lines that name the executor and the job.
    """
    signals.end_at_once()
    from envq.cli.dev import DevConfig, run  # noqa: PLC0415 - rq and redis load only when the command runs

    options = ("--log-level", log_level.value)
    names = tuple(name for entry in queue or ["default"] for name in entry.split(","))
    return run(DevConfig(workers, names, port, data_dir, namespace or "default", options), script, arguments or [])


def demo(
    workers: Workers = 2,
    json: Json = False,
    fast: Annotated[bool, typer.Option("--fast", help="Fewer jobs, for tests.")] = False,
    without_reset: Annotated[
        bool,
        typer.Option(
            "--without-reset",
            help="Switch the resets off: the demo must then find dirty values and exit with 1.",
        ),
    ] = False,
    debug: Debug = False,
) -> int:
    """Show in a minute what envq does, with a server and workers of its own."""
    signals.end_at_once()
    from envq.cli import demo as work  # noqa: PLC0415 - as above

    return work.run(DemoOptions(workers, json, fast, without_reset))
