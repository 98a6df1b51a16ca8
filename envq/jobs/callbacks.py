"""Callbacks of jobs: RQ stores a dotted name, so a worker must be able to import what it names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from rq.callbacks import Callback

from envq.code.shipping import reference_of, underlying
from envq.errors import ConfigurationError


def checked_callback(option: str, given: Callback | Callable[..., Any] | str | None) -> Callback | None:
    """
    RQ's callback for this option of a job.

    Raises ConfigurationError for a function that a worker cannot import.
    """
    if given is None:
        return None
    callback = given if isinstance(given, Callback) else Callback(cast("Callable[..., Any] | str", underlying(given)))
    function = cast(Callable[..., Any] | str, callback.func)
    if isinstance(function, str) or reference_of(function) is not None:
        return callback
    raise ConfigurationError(
        f"{option}: a worker cannot import {function.__module__}.{function.__qualname__}; RQ stores only the name "
        "of a callback. Move the function to a module that workers have, or pass its name: "
        'Callback("package.module.name")'
    )
