"""Time as it is written into records."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Now, with its zone."""
    return datetime.now(UTC)


def iso(moment: datetime) -> str:
    """ISO 8601 with microseconds and Z, the form RQ reads and writes."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
