"""The ``envq`` command: its list of commands, and what becomes of an error."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.main import get_command

from envq.cli import config_file, env, jobs, mistakes
from envq.cli.bench import bench
from envq.cli.help import show_help_if_alone
from envq.cli.local import demo, dev
from envq.cli.observe import config, health, info, monitor
from envq.cli.options import Debug, Invocation
from envq.cli.worker import worker

HELP_NAMES: Final = {"help_option_names": ["-h", "--help"]}
PASSES_ON: Final = {"allow_extra_args": True, "ignore_unknown_options": True}
STOPS_AT_SCRIPT: Final = {"allow_interspersed_args": False}  # what follows the script is the script's


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - slow, and only for this flag

        print(f"envq {version('envq')}")
        raise typer.Exit


def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
    debug: Debug = False,
) -> None:
    """A Redis task queue whose workers hold environment variables: built once, reset between jobs."""
    show_help_if_alone(context)


def make_app() -> typer.Typer:
    """All commands, in the order of ``envq --help``."""
    app = typer.Typer(
        name="envq",
        context_settings=HELP_NAMES,
        pretty_exceptions_enable=False,
        pretty_exceptions_show_locals=False,
        rich_markup_mode=None,
    )
    app.callback(invoke_without_command=True)(_root)
    app.command(short_help="Run jobs from queues.")(worker)
    app.add_typer(env.group)
    app.add_typer(jobs.group)
    app.command(short_help="Show the server, queues, executors and variables.")(info)
    app.command(short_help="Show the settings of a worker and their sources.", context_settings=PASSES_ON)(config)
    app.command(short_help="Follow the events of jobs, variables and executors.")(monitor)
    app.command(short_help="Exit with 0 if this host has a living executor.")(health)
    app.command(short_help="Measure throughput and latency of this deployment.")(bench)
    app.command(short_help="Redis, workers and a prompt for developing.", context_settings=STOPS_AT_SCRIPT)(dev)
    app.command(short_help="Show in a minute what envq does.")(demo)
    return app


def main() -> None:
    """Run the command line; every error leaves as one line and its exit code."""
    invocation = Invocation()
    try:
        code = run(invocation, sys.argv[1:])
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the outermost place: the user gets one line
        code = mistakes.report(error, debug=invocation.debug)
        if isinstance(error, BrokenPipeError):
            _forget_stdout()
    sys.exit(code)


def _forget_stdout() -> None:
    """Its reader is gone; the interpreter would complain when it flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(invocation: Invocation, arguments: list[str]) -> int:
    """Run one command; its exit code. Errors are raised."""
    command: Any = get_command(make_app())
    found = config_file.find(Path.cwd())
    defaults = config_file.default_map(found, command) if found else {}
    code = command.main(arguments, prog_name="envq", standalone_mode=False, obj=invocation, default_map=defaults)
    return int(code or 0)
