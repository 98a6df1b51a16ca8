"""``envq env``: the variables of a deployment. Signatures only; the work is in env_*.py."""

from __future__ import annotations

from typing import Annotated

import typer

from envq.cli.help import show_help_if_alone
from envq.cli.options import Debug, Json, Namespace, Timeout, Url
from envq.cli.variable_options import (
    Build,
    BuildWhen,
    Names,
    Replace,
    ReplaceHow,
    VariableName,
    Wait,
)

group = typer.Typer(
    name="env", help="Environment objects: declared, built, failed, removed.", invoke_without_command=True
)


@group.callback()
def env(context: typer.Context) -> None:
    """Environment objects: what is declared, and how far executors are with it."""
    show_help_if_alone(context)


@group.command("list")
def list_(json: Json = False, url: Url = None, namespace: Namespace = None, debug: Debug = False) -> int:
    """Show all variables.

    With --json: a list of the stored headers with "summary", "ready" and "executors".
    """
    from envq.cli import env_reading  # noqa: PLC0415 - rq and redis load only when the command runs

    return env_reading.list_variables(url, namespace, as_json=json)


@group.command(short_help="Show one variable in full.")
def show(
    name: VariableName, json: Json = False, url: Url = None, namespace: Namespace = None, debug: Debug = False
) -> int:
    """Show one variable: its options, each executor's state, and the traceback where it failed."""
    from envq.cli import env_reading  # noqa: PLC0415 - as above

    return env_reading.show_variable(name, url, namespace, as_json=json)


@group.command(short_help="Declare a variable by the path of its code.")
def declare(
    context: typer.Context,
    name: VariableName,
    initializer: Annotated[str, typer.Argument(metavar="MODULE:CALLABLE", help="Makes the value, on the worker.")],
    reset: Annotated[
        str | None, typer.Option("--reset", metavar="MODULE:CALLABLE", help="Puts the value back after a job.")
    ] = None,
    check: Annotated[
        str | None, typer.Option("--check", metavar="MODULE:CALLABLE", help="False rebuilds before the first read.")
    ] = None,
    teardown: Annotated[
        str | None, typer.Option("--teardown", metavar="MODULE:CALLABLE", help="Ends a value that is let go.")
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", "-q", metavar="NAME", help="Only workers on this queue build it; may be repeated."),
    ] = None,
    build: Build = BuildWhen.EAGER,
    required: Annotated[bool, typer.Option("--required", help="No jobs from its queues until it is built.")] = False,
    replace: Replace = ReplaceHow.KEEP,
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", min=1, show_default="counted", help="A version of your own.")
    ] = None,
    init_timeout: Annotated[float, typer.Option("--init-timeout", metavar="SECONDS", help="Limit of a build.")] = 600,
    reset_timeout: Annotated[
        float, typer.Option("--reset-timeout", metavar="SECONDS", help="Limit of a reset, check or teardown.")
    ] = 60,
    json: Json = False,
    url: Url = None,
    namespace: Namespace = None,
    debug: Debug = False,
) -> int:
    """Declare a variable by the path of its code, which only workers need to be able to import."""
    from envq.cli import env_changes  # noqa: PLC0415 - as above

    return env_changes.declare(context.params)


@group.command(short_help="Remove a variable everywhere.")
def remove(
    name: VariableName,
    wait: Wait = False,
    timeout: Timeout = None,
    url: Url = None,
    namespace: Namespace = None,
    debug: Debug = False,
) -> int:
    """Remove a variable everywhere; values are torn down between jobs."""
    from envq.cli import env_changes  # noqa: PLC0415 - as above

    return env_changes.remove(name, url, namespace, timeout if wait else 0.0)


@group.command(short_help="Build a variable anew on every executor.")
def rebuild(
    name: VariableName,
    wait: Wait = False,
    timeout: Timeout = None,
    url: Url = None,
    namespace: Namespace = None,
    debug: Debug = False,
) -> int:
    """Build a variable anew on every executor, also where it failed or is quarantined."""
    from envq.cli import env_changes  # noqa: PLC0415 - as above

    return env_changes.rebuild(name, url, namespace, timeout if wait else 0.0)


@group.command(short_help="Remove what is left of dead executors.")
def prune(json: Json = False, url: Url = None, namespace: Namespace = None, debug: Debug = False) -> int:
    """Remove what executors that are gone left behind, and build marks of versions nobody declares.

    Never code: it expires by itself when no variable and no job can need it any more.
    """
    from envq.cli import env_prune  # noqa: PLC0415 - as above

    return env_prune.prune(url, namespace, as_json=json)


@group.command(short_help="Wait until variables are built.")
def wait(
    names: Names,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            "-w",
            metavar="N",
            min=1,
            show_default="all, and at least one",
            help="How many executors must hold the current version.",
        ),
    ] = None,
    timeout: Timeout = None,
    url: Url = None,
    namespace: Namespace = None,
    debug: Debug = False,
) -> int:
    """Wait until variables are built: code 0 when they are, 1 with the reason when one failed or time is up.

    A name that nobody has declared yet is waited for. A failed build ends the wait, although executors try again.
    """
    from envq.cli import env_waiting  # noqa: PLC0415 - as above

    return env_waiting.wait(names, url, namespace, workers, timeout)
