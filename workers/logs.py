"""How a worker's processes log: to stderr, times in UTC, as text, JSON lines or in the user's format."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

LOGGERS: Final = ("envq", "envq.worker", "envq.env", "envq.job")
FIELDS: Final = (
    "job_id",
    "execution_id",
    "queue",
    "func",
    "worker",
    "env",
    "env_version",
    "attempt",
    "duration_ms",
)

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_context: dict[str, Any] = {}


def configure(level: str, style: str = "text") -> None:
    """
    Log everything of this process to stderr; may be called again.

    Args:
        level: a name of the logging module; RQ's own loggers speak only from WARNING on, unless it is DEBUG
        style: "text", "json", or a format string of the logging module
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(style))
    handler.addFilter(add_context)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("rq").setLevel(logging.DEBUG if level.upper() == "DEBUG" else logging.WARNING)


def formatter(style: str) -> logging.Formatter:
    """The formatter for "text", "json" or a format string."""
    if style == "json":
        return JsonFormatter()
    return TextFormatter(_TEXT) if style == "text" else UtcFormatter(style)


def set_context(**fields: Any) -> None:
    """Add these fields to every record of this process from now on, in place of the ones before."""
    _context.clear()
    _context.update(fields)


def add_context(record: logging.LogRecord) -> bool:
    """A logging filter: what a record does not say of the running job itself."""
    for name, value in _context.items():
        record.__dict__.setdefault(name, value)
    return True


class UtcFormatter(logging.Formatter):
    """Times as ISO 8601 with milliseconds and Z."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """The record's time; a date format of the user's wins."""
        moment = datetime.fromtimestamp(record.created, UTC)
        if datefmt:
            return moment.strftime(datefmt)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{int(record.msecs):03d}Z"


class TextFormatter(UtcFormatter):
    """One line; what user code logs also names the job that ran."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the job's id where the logger is not one of ours."""
        text = super().format(record)
        job_id = record.__dict__.get("job_id")
        if not job_id or record.name.partition(".")[0] == "envq":
            return text
        first, newline, rest = text.partition("\n")
        return f"{first} [job {job_id}]{newline}{rest}"


class JsonFormatter(UtcFormatter):
    """One JSON object a line, with the fields of ``FIELDS`` that apply."""

    def format(self, record: logging.LogRecord) -> str:
        """The object; a traceback is a field of it, so a record stays one line."""
        entry: dict[str, Any] = {
            "at": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
        }
        entry |= {name: value for name in FIELDS if (value := record.__dict__.get(name)) not in (None, "")}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False)
