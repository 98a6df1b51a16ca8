"""``envq.wait_ready``: waits until executors hold the current version of a variable."""

from __future__ import annotations

import time
from typing import Any, Final, cast

from envq.clock import check_patience
from envq.driver.client import Client, default_client
from envq.errors import GetTimeout
from envq.runtime import State
from envq.store.events import read
from envq.store.executor_store import ExecutorView
from envq.store.records import Declaration

LOOK_S: Final = 1.0  # the longest between two looks at the store: an event may be lost


def wait_ready(name: str, workers: int = 1, timeout: float | None = None) -> None:
    """
    Wait until so many executors hold the current version.

    Args:
        workers: how many executors; a worker started with ``-w 4`` has four
        timeout: seconds; None waits for ever

    Raises NotDeclared, and GetTimeout saying what each executor has.
    """
    check_patience(timeout)
    client = default_client()
    client.look_again()
    deadline = None if timeout is None else time.monotonic() + timeout
    with client.connection.pubsub(ignore_subscribe_messages=True) as events:
        cast(Any, events).subscribe(client.keys.events_channel)
        while True:  # looked at first after subscribing, so that no change can fall between
            declaration, executors = client.declarations.get(name), client.executors.all()
            ready = [each for each in executors if _holds(each, declaration)]
            if len(ready) >= workers:
                return
            left_s = LOOK_S if deadline is None else deadline - time.monotonic()
            if left_s <= 0:
                raise _timed_out(client, declaration, executors, len(ready), workers, timeout)
            _wait_for_change(events, min(LOOK_S, left_s))


def _holds(executor: ExecutorView, declaration: Declaration) -> bool:
    held = executor.variables.get(declaration.name)
    return (
        held is not None
        and held.state == State.READY
        and (held.version, held.digest, held.epoch) == declaration.identity
    )


def _wait_for_change(events: Any, timeout_s: float) -> None:
    """Until a variable or an executor changed; events of jobs are passed over."""
    end = time.monotonic() + timeout_s
    while (left_s := end - time.monotonic()) > 0:
        message = events.get_message(timeout=left_s)
        if message and not all(each.kind.startswith("job.") for each in read(message["data"])):
            return


def _timed_out(  # noqa: PLR0913 - the parts of one sentence
    client: Client,
    declaration: Declaration,
    executors: list[ExecutorView],
    ready: int,
    wanted: int,
    timeout: float | None,
) -> GetTimeout:
    lines = [
        f"environment variable {declaration.name!r}, version {declaration.version}, is ready on {ready} of {wanted} "
        f"executors after {timeout:g} s (namespace {client.keys.namespace!r}, {len(executors)} executors in all):"
    ]
    for executor in executors:
        held = executor.variables.get(declaration.name)
        state = f"{held.state}, version {held.version}" if held else "not there"
        lines.append(f"  {executor.info.name}: {state}")
        if held and held.error:
            lines += [f"    {line}" for line in held.error.rstrip().splitlines()]
    return GetTimeout("\n".join(lines))
