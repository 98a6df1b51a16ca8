"""Waiting for something to become true, instead of sleeping and hoping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
FIRST_PAUSE_SECONDS = 0.002
LONGEST_PAUSE_SECONDS = 0.05


def eventually(assertion: Callable[[], Result], timeout: float = 10.0) -> Result:
    """Call `assertion` until it stops raising `AssertionError` or returning False; return its result.

    None counts as success, so that a function made of assert statements works as it is.
    """
    deadline = time.monotonic() + timeout
    pause = FIRST_PAUSE_SECONDS
    never_set = threading.Event()
    while True:
        last_try = time.monotonic() >= deadline
        try:
            result = assertion()
            if result is not False:
                return result
            if last_try:
                raise AssertionError(f"still false after {timeout} s")
        except AssertionError:
            if last_try:
                raise
        never_set.wait(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)
