"""Functions of a test run as jobs; nested ones travel by value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import envq

TIMEOUT_S = 30.0


def enqueue(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The job; options as `Task.options` takes them."""
    return envq.task(function).options(**options).enqueue(*args)


def run(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What the function returns on a worker."""
    return envq.get(enqueue(function, *args, **options), timeout=TIMEOUT_S)


def run_all(function: Callable[..., Any], times: int) -> list[Any]:
    """What so many jobs of it return, enqueued together."""
    return envq.get([enqueue(function) for _ in range(times)], timeout=TIMEOUT_S)
