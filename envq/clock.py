"""Time as it is written into records."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime


def utc_now() -> datetime:
    """Now, with its zone."""
    return datetime.now(UTC)


def iso(moment: datetime) -> str:
    """ISO 8601 with microseconds and Z, the form RQ reads and writes."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def iso_of(moment: float) -> str:
    """The same of seconds since the epoch; what changes once a second is made once a second."""
    global _known
    second = int(moment)
    known, text = _known
    if second != known:
        text = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second))
        _known = (second, text)
    return f"{text}{int((moment - second) * 1000000):06d}Z"


_known = (0, "1970-01-01T00:00:00.")


def check_patience(timeout: object) -> None:
    """Raise ValueError for what is neither a number of seconds nor None, on which a wait would never end."""
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or math.isnan(timeout):
        raise ValueError(f"timeout={timeout!r:.80} must be a number of seconds, or None to wait for ever")
