"""What others tell a worker over pub/sub, parsed without trusting it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

Kind = Literal["stop-job", "stop-execution", "kill-horse", "shutdown"]
KINDS: Final[tuple[Kind, ...]] = ("stop-job", "stop-execution", "kill-horse", "shutdown")
_SHOWN: Final = 200


@dataclass(frozen=True)
class Command:
    """One of RQ's commands for one executor."""

    kind: Kind
    job_id: str = ""
    execution_id: str = ""  # "" for any


class NotACommand(ValueError):
    """A message that says nothing we know; its text says why."""


def parse(data: bytes) -> Command:
    """Read a message of a command channel; raises NotACommand and nothing else."""
    try:
        payload: Any = json.loads(data)
    except (ValueError, RecursionError):
        raise NotACommand(f"not JSON: {data[:_SHOWN]!r}") from None
    if not isinstance(payload, dict):
        raise NotACommand(f"not an object: {data[:_SHOWN]!r}")
    fields = cast(dict[str, Any], payload)
    kind: Kind | None = next((known for known in KINDS if known == fields.get("command")), None)
    if kind is None:
        raise NotACommand(f"unknown command: {data[:_SHOWN]!r}")
    command = Command(kind, _text(fields, "job_id"), _text(fields, "execution_id"))
    if kind in ("stop-job", "stop-execution") and not command.job_id:
        raise NotACommand(f"no job_id: {data[:_SHOWN]!r}")
    return command


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""
