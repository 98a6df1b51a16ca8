"""Time limits of jobs: floating seconds for envq, RQ's whole seconds beside them."""

from __future__ import annotations

import math
from typing import Final, cast

from rq.utils import parse_timeout

NO_LIMIT: Final = -1  # RQ's word for it


def limit_seconds(given: float | str | None) -> float | None:
    """
    A timeout as users write it (0.5, 90, "90", "2m"), in seconds; None for no limit, also written -1.

    Raises ValueError for zero, and what RQ raises for text it does not understand.
    """
    if given is None:
        return None
    if isinstance(given, str):
        try:
            given = float(given)
        except ValueError:
            given = cast(int, parse_timeout(given))
    if given == 0 or math.isnan(given):
        raise ValueError(f"a timeout of {given} is not allowed; -1 or None means no limit")
    return None if given < 0 or math.isinf(given) else float(given)


def whole_seconds(limit: float | None) -> int:
    """What RQ's field holds: whole seconds, rounded up; -1 for no limit."""
    return NO_LIMIT if limit is None else math.ceil(limit)


def stored_limit(timeout: float | None, exact: float | None) -> float | None:
    """The limit of a job that was read: the exact one where it is kept, else RQ's field; None: no limit."""
    if exact is not None:
        return exact
    return None if timeout is None or timeout < 0 else float(timeout)
