"""How an execution ended, read from an entry of RQ's stream of results."""

from __future__ import annotations

import re
import zlib
from base64 import b64decode
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any, Final, Protocol, Self, cast

from rq.results import Result

from envq.errors import JobError, JobFailed, JobStopped, PayloadError, WorkerLost
from envq.jobs.signed import check_result

Entry = tuple[bytes, dict[bytes, bytes]]

_LAST_SEQUENCE: Final = 2**64 - 1
_TRACEBACK: Final = "Traceback (most recent call last):"
_CHAINED: Final = re.compile(
    r"\n\n(?:The above exception was the direct cause of the following exception"
    r"|During handling of the above exception, another exception occurred):\n\n"
)
_OURS: Final = f"{WorkerLost.__module__}."
_LOST: Final = f"{WorkerLost.__module__}.{WorkerLost.__qualname__}"


class CheckedResult(Result):
    """RQ's view of an entry, which is loaded only where its signature fits, if entries are signed."""

    @classmethod
    def restore(cls, job_id: str, result_id: str, payload: dict[bytes, bytes], *args: Any, **options: Any) -> Self:
        """Raises PayloadError before anything is unpickled."""
        check_result(job_id, payload)
        return cast(Self, super().restore(job_id, result_id, payload, *args, **options))


class _Loads(Protocol):
    def loads(self, data: bytes, /) -> Any: ...


@dataclass(frozen=True)
class Outcome:
    """A value, or the error that envq.get raises in its place."""

    value: Any = None
    error: JobError | PayloadError | None = None

    def unwrap(self) -> Any:
        """The value; raises the error."""
        if self.error is not None:
            raise self.error
        return self.value


def read(fields: dict[bytes, bytes], serializer: _Loads, job_id: str, function: str) -> Outcome | None:
    """
    What one entry says; None where the job goes on (it returned a Retry).

    Args:
        function: its name, for the message of an error
    """
    try:
        check_result(job_id, fields)
    except PayloadError as error:
        return Outcome(error=error)
    match Result.Type(int(fields[b"type"])):
        case Result.Type.RETRIED:
            return None
        case Result.Type.SUCCESSFUL:
            return _success(fields.get(b"return_value"), serializer, job_id, function)
        case Result.Type.STOPPED:
            return Outcome(error=JobStopped(f"job {job_id} ({function}) was stopped", job_id))
        case Result.Type.MAX_RETRIES_EXCEEDED:
            text = f"{function} returned a Retry more often than its max allows"
            return Outcome(error=JobFailed(f"job {job_id}: {text}", job_id))
        case Result.Type.FAILED:
            packed = fields.get(b"exc_string")
            text = zlib.decompress(b64decode(packed)).decode() if packed else ""
            return Outcome(error=failure(text, job_id, function))


def failure(traceback: str, job_id: str, function: str) -> JobFailed:
    """The error for a remote traceback, which is its message's end; "" where none is kept."""
    said = _headline(traceback) or "it failed and its traceback is not kept any more"
    kind = WorkerLost if said.startswith(_LOST) else JobFailed
    message = f"job {job_id} ({function}): {said}"
    if "\n" in traceback.strip():
        message += f"\n\n{traceback.rstrip()}"
    return kind(message, job_id, traceback)


def _headline(traceback: str) -> str:
    """
    The first line of what was raised last.

    An error of envq comes first: its text may carry the traceback of an initializer, chained as any other.
    """
    said = [_first_line(part) for part in _CHAINED.split(traceback.rstrip())]
    return next((line for line in said if line.startswith(_OURS)), said[-1])


def _first_line(part: str) -> str:
    lines = part.split("\n")
    if lines[0] == _TRACEBACK:
        lines = list(dropwhile(lambda line: line.startswith("  "), lines[1:]))
    return lines[0] if lines else ""


def newest(entries: list[Entry]) -> str | None:
    """The position of the first of these entries, as XREVRANGE gives them; None where there are none."""
    return entries[0][0].decode() if entries else None


def before(position: str) -> str:
    """The position right before this one, so that reading behind it gives this one again."""
    milliseconds, _, sequence = position.partition("-")
    if int(sequence) > 0:
        return f"{milliseconds}-{int(sequence) - 1}"
    return f"{int(milliseconds) - 1}-{_LAST_SEQUENCE}"


def is_before(position: str, other: str) -> bool:
    """Whether it lies further to the front of a stream."""
    return _numbers(position) < _numbers(other)


def _numbers(position: str) -> tuple[int, int]:
    milliseconds, _, sequence = position.partition("-")
    return int(milliseconds), int(sequence)


def _success(packed: bytes | None, serializer: _Loads, job_id: str, function: str) -> Outcome:
    if packed is None:
        return Outcome()
    try:
        return Outcome(serializer.loads(b64decode(packed)))
    except Exception as error:  # noqa: BLE001 - constructors of any package run here
        problem = PayloadError(
            f"the result of job {job_id} ({function}) cannot be loaded here: {type(error).__name__}: {error}"
        )
        problem.__cause__ = error
        return Outcome(error=problem)
