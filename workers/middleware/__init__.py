"""What happens around every job: one behaviour a file, composed from the outside in."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import cast

from envq.errors import ConfigurationError
from envq.workers.execution.context import CallNext, Middleware
from envq.workers.middleware.environment_reset import environment_reset
from envq.workers.middleware.isolation import Isolation
from envq.workers.middleware.job_log import job_log
from envq.workers.middleware.leftovers import leftovers
from envq.workers.middleware.random_seed import random_seed
from envq.workers.middleware.store_result import store_result
from envq.workers.middleware.time_limit import middleware_limit, time_limit

# The user's own go between random_seed and time_limit: they see what the job returns or raises, and may read
# variables, which are reset after them.
AROUND: Sequence[Middleware] = (environment_reset, leftovers, job_log)
BEFORE: Sequence[Middleware] = (random_seed,)
INNER: Sequence[Middleware] = (time_limit,)


def all_of(users: Sequence[Middleware], *, isolate: bool, grace_s: float) -> list[Middleware]:
    """The whole onion; with ``isolate`` what is inside of what stores runs in a copy of the process."""
    stores: Middleware = Isolation(grace_s) if isolate else store_result
    return [*AROUND, stores, *BEFORE, *users, *INNER]


def compose(middleware: Sequence[Middleware], function: CallNext) -> CallNext:
    """One callable: the first middleware is the outermost, ``function`` the core."""
    call = function
    for layer in reversed(middleware):
        call = _wrap(layer, call)
    return call


def _wrap(layer: Middleware, call_next: CallNext) -> CallNext:
    return lambda context: layer(context, call_next)


def load(path: str) -> Middleware:
    """The middleware at ``module:name``; ConfigurationError says why it cannot be used."""
    module_name, _, name = path.partition(":") if ":" in path else path.rpartition(".")[::1]
    if not module_name or not name:
        raise ConfigurationError(f"middleware {path!r} is not of the form module:name")
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"middleware {path!r} cannot be imported: {error}") from None
    if not callable(found):
        raise ConfigurationError(f"middleware {path!r} is not callable")
    return cast(Middleware, found)


def of_user(paths: Sequence[str]) -> list[Middleware]:
    """The user's own, within their limit; ConfigurationError for one that cannot be used."""
    return [middleware_limit, *map(load, paths)] if paths else []
