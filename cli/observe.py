"""``envq info``, ``config``, ``monitor`` and ``health``: signatures only."""

from __future__ import annotations

from typing import Annotated

import typer

from envq.cli.options import Debug, Json, Label, Namespace, Url


def info(json: Json = False, url: Url = None, namespace: Namespace = None, debug: Debug = False) -> int:
    """Show the server, queues, executors and variables; changes nothing and unpickles nothing.

    With --json: an object with "server", "queues", "executors" and "variables".
    """
    from envq.cli import info as work  # noqa: PLC0415 - rq and redis load only when the command runs

    return work.show(url, namespace, as_json=json)


def config(context: typer.Context, json: Json = False, debug: Debug = False) -> int:
    """Show what `envq worker` would run with, and where each setting comes from.

    Flags of `envq worker` may follow: `envq config -w 4`. With --json: a list of "name", "value", "source".
    """
    from envq.cli import config as work  # noqa: PLC0415 - as above

    return work.show(context, as_json=json)


def monitor(
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", "-k", metavar="KIND", help="Only events of this kind, as job.failed; may be repeated."),
    ] = None,
    replay: Annotated[bool, typer.Option("--replay", help="Begin with the events that Redis still has.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="End after N events.", show_default="never")
    ] = None,
    json: Json = False,
    url: Url = None,
    namespace: Namespace = None,
    debug: Debug = False,
) -> int:
    """Follow what happens to jobs, variables and executors, until Ctrl-C.

    A lost connection is made up for: Redis keeps the last 10,000 events. With --json: one object a line.
    """
    from envq.cli import monitor as work  # noqa: PLC0415 - as above

    return work.follow(url, namespace, work.Selection(frozenset(kind or ()), replay, limit), as_json=json)


def health(
    ready: Annotated[
        bool, typer.Option("--ready", help="Ask for an executor that takes jobs, not only one that lives.")
    ] = False,
    name: Label = None,
    json: Json = False,
    url: Url = None,
    namespace: Namespace = None,
    debug: Debug = False,
) -> int:
    """Exit with 0 if this host has a living executor, else with 1; for probes.

    With --name: an executor of the worker with that label, on any host.
    """
    from envq.cli import health as work  # noqa: PLC0415 - as above

    return work.check(url, namespace, label=name, ready=ready, as_json=json)
