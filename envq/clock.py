"""Time as it is written into records."""

from __future__ import annotations

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
