"""Runs the coroutines of code that executes in this process, on one event loop that lasts."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Coroutine
from typing import Any


class CoroutineRunner:
    """
    Runs each coroutine to its end, and always on the same loop, so that what is bound to it stays usable.

    A caller that is inside a running loop itself (a notebook, an async web app) is blocked meanwhile: the
    coroutine then runs on a thread of its own.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """What the coroutine returns or raises."""
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        if self._loop.is_running():  # called from within a coroutine of ours: the loop is taken
            return _on_thread(asyncio.run, coroutine)
        if _in_loop():
            return _on_thread(self._loop.run_until_complete, coroutine)
        return self._loop.run_until_complete(coroutine)

    def close(self) -> None:
        """Let go of the loop."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.close()

    def after_fork(self) -> None:
        """A loop must not be shared with the parent; the parent's file descriptors stay open here."""
        self._loop = None


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _on_thread(run: Any, coroutine: Coroutine[Any, Any, Any]) -> Any:
    context = contextvars.copy_context()
    ended: list[Any] = []
    raised: list[BaseException] = []

    def target() -> None:
        try:
            ended.append(context.run(run, coroutine))
        except BaseException as error:  # noqa: BLE001 - carried over to the thread that waits
            raised.append(error)

    thread = threading.Thread(target=target, name="envq-coroutine")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return ended[0]


runner = CoroutineRunner()
os.register_at_fork(after_in_child=runner.after_fork)
