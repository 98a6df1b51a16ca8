"""Jobs that do different things in one batch, and what must be true once all have ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import envq
from envq.driver.client import Client
from support.waiting import eventually

TINY = 400  # jobs after which an executor claims whole batches
WAIT_S = 40.0
Act = Callable[[str, int], Any]


def acting(notes: Path, wait: Callable[[], None]) -> Act:
    """One function, so that jobs of all kinds are enqueued in one go; it travels by value."""

    def act(kind: str, number: int) -> Any:
        import os
        import signal
        import time

        if kind == "tiny":
            return number
        with open(notes, "ab", buffering=0) as file:  # noqa: PTH123 - as fast as can be
            file.write(b"%s %d\n" % (kind.encode(), number))
        if kind == "wait":
            wait()
        elif kind == "read":
            return envq.env.value["owner"]
        elif kind == "spin":
            until = time.monotonic() + number / 1000
            while time.monotonic() < until:
                pass
        elif kind == "die" and notes.read_bytes().count(b"die %d\n" % number) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "raise":
            raise ValueError(number)
        return number

    return act


def enqueue(act: Act, *calls: tuple[str, int], **options: Any) -> list[Any]:
    """All in one go."""
    return envq.task(act).options(**options).starmap(calls)


def grow(act: Act, executors: int = 1) -> None:
    """Executors claim batches once they have seen tiny jobs."""
    envq.get(enqueue(act, *[("tiny", 0)] * (TINY * executors)), timeout=WAIT_S)


def assert_nothing_is_left(client: Client) -> None:
    """No claim, no execution, nothing in progress, nothing to be settled; soon."""
    patterns = (client.keys.claims("*"), "rq:execution*", "rq:wip:*", client.keys.settle)

    def gone() -> None:
        assert [key for pattern in patterns for key in client.connection.scan_iter(pattern, count=1000)] == []

    eventually(gone)
