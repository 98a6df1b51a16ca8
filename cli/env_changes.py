"""``envq env declare``, ``remove`` and ``rebuild``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import typer

from envq.cli.env_waiting import give_up_if_broken, until
from envq.cli.readiness import readiness
from envq.cli.render import declaration_outcome
from envq.cli.target import Target, opened
from envq.driver.client import connect
from envq.environment import declarable, env
from envq.errors import InvalidDeclaration
from envq.variables import Build, EnvironmentVariable, Replace


def declare(flags: Mapping[str, Any]) -> int:
    """
    Publish a variable whose code is named by paths; nothing is imported or built here.

    Raises BadParameter for a name that no variable can have, InvalidDeclaration for a bad path or option.
    """
    name: str = flags["name"]
    try:
        declarable(name)
    except InvalidDeclaration as error:
        raise typer.BadParameter(str(error), param_hint="NAME") from None
    variable = EnvironmentVariable(
        flags["initializer"],
        flags["reset"],
        check=flags["check"],
        teardown=flags["teardown"],
        queues=flags["queue"] or None,
        build=cast(Build, str(flags["build"])),
        required=flags["required"],
        replace=cast(Replace, str(flags["replace"])),
        version=flags["version"],
        init_timeout=flags["init_timeout"],
        reset_timeout=flags["reset_timeout"],
    )
    with opened(flags["url"], flags["namespace"]) as target:
        before = target.declarations.snapshot().declarations.get(name)
        connect(target.settings.url, namespace=target.settings.namespace, driver="never")
        setattr(env, name, variable)
        after = target.declarations.get(name)
    print(declaration_outcome(before, after, flags["version"]))
    return 0


def remove(name: str, url: str | None, namespace: str | None, patience_s: float | None) -> int:
    """Remove it; then wait at most so long (None: without end) until no executor holds a value."""
    with opened(url, namespace) as target:
        removed = target.declarations.remove(name)
        print(f"{name} v{removed.version} removed")
        return 0 if patience_s == 0 else until(lambda: _still_held(target, name), patience_s)


def _still_held(target: Target, name: str) -> str | None:
    holders = [view.info.name for view in target.executors.all() if name in view.variables]
    return f"{', '.join(holders)} still holds {name}" if holders else None


def rebuild(name: str, url: str | None, namespace: str | None, patience_s: float | None) -> int:
    """Ask for it; then wait at most so long (None: without end) until every executor has built it anew."""
    with opened(url, namespace) as target:
        asked = target.declarations.rebuild(name)
        print(f"{name} v{asked.version} is built anew on every executor")
        return 0 if patience_s == 0 else until(lambda: _not_rebuilt(target, name), patience_s)


def _not_rebuilt(target: Target, name: str) -> str | None:
    snapshot = target.declarations.snapshot()
    if name not in snapshot.declarations:
        return None  # removed meanwhile
    state = readiness(name, snapshot, target.executors.all())
    give_up_if_broken(name, state, None)
    return None if state.settled == len(state.holders) else f"{name}: {state.summary}"
