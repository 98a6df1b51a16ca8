"""What waits on an event loop besides tasks: callbacks that are due later, or at the next turn."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_ASYNCIO: Final = str(Path(asyncio.__file__).parent)


def timers(loop: asyncio.AbstractEventLoop | None) -> list[asyncio.TimerHandle]:
    """Those that are neither due nor cancelled; none where a loop of another kind does not tell."""
    # asyncio has no public way to ask, and the same two fields from 3.4 on.
    waiting: list[asyncio.TimerHandle] = getattr(loop, "_scheduled", [])
    return [timer for timer in waiting if not timer.cancelled()]


def callbacks_wait(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether something is to be called at the loop's next turn."""
    return bool(getattr(loop, "_ready", ()))


def is_of_library(callback: Callable[..., Any]) -> bool:
    """Whether it is a function of asyncio or of an installed package, bound to whatever object."""
    while isinstance(callback, functools.partial):
        callback = cast(Callable[..., Any], callback.func)
    code = getattr(getattr(callback, "__func__", callback), "__code__", None)
    if code is None:  # of C: list.append of a user's list, or a method of a future
        return type(getattr(callback, "__self__", None)).__module__ == "_asyncio"
    return not _INSTALLED.isdisjoint(Path(code.co_filename).parts) or code.co_filename.startswith(_ASYNCIO)
