"""What a driver does while the server is away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

import redis

import envq

Result = TypeVar("Result")
AWAY: Final = (redis.RedisError, ConnectionError, TimeoutError, envq.ServerUnavailable)
PAUSE_S: Final = 0.05
LONGEST_S: Final = 60.0


def until_done(attempt: Callable[[], Result]) -> Result:
    """Repeat what may be repeated until the server takes it."""
    deadline = time.monotonic() + LONGEST_S
    while True:
        try:
            return attempt()
        except AWAY:
            if time.monotonic() > deadline:
                raise
            threading.Event().wait(PAUSE_S)
