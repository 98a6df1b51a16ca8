"""``envq env prune``: what dead executors and old versions left behind, as far as nobody can need it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from envq.cli.printing import print_json
from envq.cli.render import plural
from envq.cli.target import Target, opened
from envq.store.scripts import EXECUTOR_TTL_S, silent_executors


def prune(url: str | None, namespace: str | None, *, as_json: bool) -> int:
    """Remove it, and say what was removed."""
    with opened(url, namespace) as target:
        executors = forget_executors(target)
        marks = forget_build_marks(target)
    if as_json:
        print_json({"executors": executors, "build_marks": marks})
    else:
        for name in executors:
            print(f"executor {name}: forgotten")
        for mark in marks:
            print(f"build marks of {mark}: removed")
        print(f"removed {plural(len(executors), 'executor')} and marks of {plural(len(marks), 'old version')}")
    return 0


def forget_executors(target: Target) -> list[str]:
    """
    Executors silent for so long that their record expired, and that hold no claims.

    One with claims is left to the workers' reaper, which gives its jobs back first.
    """
    silent = silent_executors(target.connection, target.keys, past_ms=EXECUTOR_TTL_S * 1000)
    gone = [name for name in silent if not target.connection.exists(target.keys.claims(name))]
    for name in gone:
        target.executors.remove(name)
    return gone


def forget_build_marks(target: Target) -> list[str]:
    """Marks of versions that are declared no more; those of current ones are what quarantine counts."""
    declared = target.declarations.snapshot().declarations
    removed: list[str] = []
    for name, version, key in _marks(target):
        if name not in declared or declared[name].version != version:
            target.connection.delete(key)
            removed.append(f"{name} v{version}")
    return sorted(removed)


def _marks(target: Target) -> Iterator[tuple[str, int, bytes]]:
    pattern = target.keys.tries("*", 0).removesuffix("0") + "*"
    for key in cast(Iterator[bytes], cast(Any, target.connection).scan_iter(match=pattern, count=1000)):
        *_, name, version = key.decode().split(":")
        if version.isdigit():
            yield name, int(version), key
