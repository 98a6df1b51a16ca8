"""``envq monitor``: the stream of events, as it grows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import typer

from envq.cli import mistakes, signals
from envq.cli.render import event_line
from envq.cli.target import opened
from envq.errors import did_you_mean
from envq.store import events
from envq.store.records import Event, EventKind


@dataclass(frozen=True)
class Selection:
    """Which events to show; no kinds means all, no limit means for ever."""

    kinds: frozenset[str]
    replay: bool
    limit: int | None


def follow(url: str | None, namespace: str | None, selection: Selection, *, as_json: bool) -> int:
    """Print events until interrupted, or until there were enough."""
    unknown = sorted(selection.kinds - {kind.value for kind in EventKind})
    if unknown:
        kinds = [kind.value for kind in EventKind]
        raise typer.BadParameter(
            f"no event is of the kind {unknown[0]!r}{did_you_mean(unknown[0], kinds)} (kinds: {', '.join(kinds)})",
            param_hint="--kind",
        )
    signals.unwind_on_sigterm()
    try:
        with opened(url, namespace) as target:
            after = events.FROM_START if selection.replay else events.last_position(target.connection, target.keys)
            _print(_chosen(events.follow(target.connection, target.keys, after), selection), as_json=as_json)
    except (signals.Stopped, KeyboardInterrupt):
        pass  # the way to end it
    return mistakes.EXIT_OK


def _chosen(happened: Iterator[Event], selection: Selection) -> Iterator[Event]:
    wanted = (each for each in happened if not selection.kinds or each.kind in selection.kinds)
    return islice(wanted, selection.limit)


def _print(happened: Iterator[Event], *, as_json: bool) -> None:
    for each in happened:
        print(each.to_json() if as_json else event_line(each))
        sys.stdout.flush()
