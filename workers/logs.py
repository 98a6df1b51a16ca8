"""How a worker's processes log: to stderr, times in UTC, as text, JSON lines or in the user's format."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from envq.clock import iso_of

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
_CALL_HANDLERS: Final = logging.Logger.callHandlers
_envq, _job = logging.getLogger("envq"), logging.getLogger("envq.job")
_context: dict[str, Any] = {}


def configure(level: str, style: str = "text") -> None:
    """
    Log everything of this process to stderr; may be called again.

    Args:
        level: a name of the logging module; RQ's own loggers speak only from WARNING on, unless it is DEBUG
        style: "text", "json", or a format string of the logging module
    """
    global _handler
    _handler = handler = Handler(sys.stderr)
    handler.setFormatter(formatter(style))
    handler.addFilter(add_context)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("rq").setLevel(logging.DEBUG if level.upper() == "DEBUG" else logging.WARNING)


def short_way() -> Handler | None:
    """Our handler, if a record of ``envq.job`` would go to it as text and nowhere else; None where others listen."""
    root = logging.root
    if _handler is None:
        return None
    alone = (
        len(root.handlers) == 1
        and root.handlers[0] is _handler
        and not (_job.handlers or _envq.handlers or _job.filters)
        and type(_handler.formatter) is TextFormatter
        and logging.Logger.callHandlers is _CALL_HANDLERS  # some tools put theirs in its place
    )
    return _handler if alone else None


class Handler(logging.StreamHandler[TextIO]):
    """Writes to a stream; lines that come the short way stay in order with the others."""

    _waiting = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        self.write_waiting()
        super().emit(record)

    def line(self, moment: float, text: str) -> None:
        """A line of ``envq.job``, INFO, at a time in seconds since the epoch; written at once."""
        lines, self._waiting = self._waiting, ""
        self._write(f"{lines}{iso_of(moment)[:23]}Z INFO envq.job: {text}\n")

    def late_line(self, moment: float, text: str) -> None:
        """The same, written with the next line."""
        self._waiting += f"{iso_of(moment)[:23]}Z INFO envq.job: {text}\n"

    def write_waiting(self) -> None:
        """Write what waits for a next line."""
        if self._waiting:
            lines, self._waiting = self._waiting, ""
            self._write(lines)

    def _write(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):
            pass  # as with any line that logging cannot write: jobs go on


def formatter(style: str) -> logging.Formatter:
    """The formatter for "text", "json" or a format string; ValueError for one that cannot be used."""
    if style == "json":
        return JsonFormatter()
    if style == "text":
        return TextFormatter(_TEXT)
    made = UtcFormatter(style, defaults=dict.fromkeys(FIELDS, ""))
    try:
        made.format(logging.makeLogRecord({"msg": "", "levelname": "INFO", "name": "envq"}))
    except KeyError as error:
        raise ValueError(f"there is no field {error}") from None
    except TypeError as error:
        raise ValueError(str(error)) from None
    return made


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


_handler: Handler | None = None
