"""What the jobs of ``envq bench`` do; workers import this module by its name."""

from __future__ import annotations

import random
import time
from typing import Any

from envq.environment import env


def no_op(*payload: bytes) -> None:
    """Do nothing with whatever was sent."""


def wait(milliseconds: float, *payload: bytes) -> None:
    """Take so long without using the processor."""
    time.sleep(milliseconds / 1000)


def read(name: str, milliseconds: float, *payload: bytes) -> None:
    """Read a variable."""
    getattr(env, name)
    if milliseconds:
        wait(milliseconds)


def change(name: str, milliseconds: float, *payload: bytes) -> None:
    """Read a variable, and leave it changed."""
    getattr(env, name).append(1)
    if milliseconds:
        wait(milliseconds)


def incompressible(size: int) -> bytes:
    """So many bytes that stay as many when they are stored: records are compressed."""
    return random.Random(size).randbytes(size)


def make() -> list[Any]:
    """Initializer: what costs nothing to make."""
    return []


def same(value: list[Any]) -> list[Any]:
    """Reinitializer of a variable that nobody changes."""
    return value


def emptied(value: list[Any]) -> list[Any]:
    """Reinitializer that undoes ``change``."""
    value.clear()
    return value
