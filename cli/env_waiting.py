"""Waiting until executors have done what was asked of a variable."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import Final

from envq.cli.readiness import Readiness, readiness
from envq.cli.render import last_line
from envq.cli.target import Target, opened

POLL_S: Final = 0.1  # each look is two round trips

Look = Callable[[], str | None]


class GivenUp(Exception):
    """There is no use in waiting any longer; the message says why."""


def wait(
    names: Iterable[str], url: str | None, namespace: str | None, workers: int | None, timeout: float | None
) -> int:
    """Until every one of the variables is built on so many executors (None: on all, and at least one)."""
    with opened(url, namespace) as target:
        return until(lambda: _missing(target, sorted(set(names)), workers), timeout)


def until(look: Look, timeout: float | None) -> int:
    """
    Look again and again until nothing is missing: 0; or time is up or ``look`` gives up: 1, with the reason.

    ``look`` says what is missing, or None.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    try:
        while (missing := look()) is not None:
            if deadline is not None and time.monotonic() >= deadline:
                raise GivenUp(f"not within {timeout:g} s: {missing}")
            time.sleep(POLL_S)
    except GivenUp as reason:
        print(f"envq: {reason}", file=sys.stderr)
        return 1
    return 0


def _missing(target: Target, names: list[str], workers: int | None) -> str | None:
    snapshot, executors = target.declarations.snapshot(), target.executors.all()
    for name in names:
        if name not in snapshot.declarations:
            return f"{name} is not declared"
        state = readiness(name, snapshot, executors)
        give_up_if_broken(name, state, workers)
        if state.settled < (workers or max(1, len(state.holders))):
            return f"{name}: {state.summary}"
    return None


def give_up_if_broken(name: str, state: Readiness, workers: int | None) -> None:
    """Raise GivenUp where a failed build leaves too few executors for the wait to succeed."""
    if not state.broken or (workers is not None and len(state.holders) - len(state.broken) >= workers):
        return
    first = state.broken[0]
    raise GivenUp(
        f"{name} {first.state} on {first.executor}: {last_line(first.error)}; "
        f"envq env show {name} has the whole traceback"
    )
