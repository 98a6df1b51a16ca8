"""From an assigned variable to what is published of it, and what is said about that."""

from __future__ import annotations

import functools
import logging
import os
import socket
import sys
from pathlib import Path
from typing import Any, cast

from envq.clock import iso, utc_now
from envq.code.payload import Blob, pack_code
from envq.code.shipping import MAIN_MODULES
from envq.errors import InvalidDeclaration
from envq.settings import Limits
from envq.store.declarations import Published
from envq.store.records import Declaration
from envq.variables import EnvironmentVariable

log = logging.getLogger("envq.env")


def pack(name: str, variable: EnvironmentVariable, limits: Limits) -> Blob:
    """Its code; raises PayloadError naming the variable and what it captures that cannot travel."""
    return pack_code(variable.callables, what=f"variable {name}", limits=limits)


def declaration_of(name: str, variable: EnvironmentVariable, blob: Blob) -> Declaration:
    """What is wanted: the version counts only where the user gave one."""
    header, options = blob.header, variable.options()
    version = options.pop("version")
    return Declaration(
        name=name,
        version=version or 0,
        explicit=version is not None,
        digest=header.digest,
        by_value=header.by_value,
        python=header.python,
        cloudpickle=header.cloudpickle,
        size=header.size,
        declared_at=iso(utc_now()),
        declared_by=f"{socket.gethostname()} pid {os.getpid()} ({Path(sys.argv[0]).name or 'interactive'})",
        **options,
    )


def lives_in_main(function: object) -> bool:
    """Whether it was written in the script or notebook that runs, not in a module."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    return getattr(function, "__module__", None) in MAIN_MODULES


def report(published: Published) -> None:
    """Log what became of a declaration, and warn where another one stands or two take turns."""
    now = published.declaration
    if published.change == "unchanged":
        log.debug("environment variable %s is declared already, version %d", now.name, now.version)
    elif published.change == "older":
        log.warning(
            "environment variable %s stays at version %d, declared by %s: a lower version does not replace it",
            now.name,
            now.version,
            now.declared_by,
        )
    else:
        log.info("environment variable %s declared, version %d", now.name, now.version)
    before = published.previous
    if published.taking_turns and before is not None:
        log.warning(
            "environment variable %s: version %d (%.12s, declared by %s) is code that was replaced before, and now "
            "replaces version %d (%.12s, declared by %s); two releases take turns. Give one of them an explicit "
            "version= to settle it",
            now.name,
            now.version,
            now.digest,
            now.declared_by,
            before.version,
            before.digest,
            before.declared_by,
        )


def not_a_variable(name: str, given: object) -> InvalidDeclaration:
    """The error for anything else, with the line to write instead."""
    advice = f"envq.env.{name} = envq.EnvironmentVariable(initializer), where initializer() returns the object"
    if callable(given):
        advice = f"envq.env.{name} = envq.EnvironmentVariable({getattr(given, '__name__', 'initializer')})"
    return InvalidDeclaration(
        f"envq.env.{name} takes an EnvironmentVariable, not a {type(given).__name__}: every worker makes the object "
        f"itself. Write {advice}",
        name,
    )
