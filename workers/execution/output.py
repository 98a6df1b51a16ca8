"""What jobs print, as whole lines that name the executor and the job."""

from __future__ import annotations

import codecs
import io
import os
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TextIO, cast

LONGEST_PARTIAL: Final = 8192  # characters kept while waiting for the end of a line
ID_SHOWN: Final = 8  # characters of a job's id


@dataclass
class JobLabel:
    """An executor's label: its number, and the job that runs, as ``1 step 3f2a91c4``."""

    number: int
    job: str = ""

    def begin(self, title: str, job_id: str) -> None:
        """From now on a job prints, named by the last part of its function's name and the head of its id."""
        self.job = f" {title.rpartition('.')[2]} {job_id[:ID_SHOWN]}"

    def end(self) -> None:
        """From now on the executor itself prints."""
        self.job = ""

    def __str__(self) -> str:
        return f"{self.number}{self.job}"


class LabelledStream(io.TextIOBase):
    """
    A text stream that sends each completed line in one write, after a label.

    Partial lines are kept per thread, so that threads that print at once do not tear each other's lines.
    What a carriage return overwrites (progress bars) is dropped.
    """

    errors: str | None = "replace"
    newlines = None

    def __init__(self, descriptor: int, describe: Callable[[], str]) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._describe = describe
        self._lock = threading.RLock()
        self._partial: dict[int, str] = {}
        self._bytes = _LabelledBytes(self)

    @property
    def encoding(self) -> str:  # type: ignore[override] - a plain attribute in the base class
        """Always UTF-8, whatever the locale says."""
        return "utf-8"

    @property
    def buffer(self) -> io.RawIOBase:
        """The same stream for bytes: lines are labelled as well."""
        return self._bytes

    def write(self, text: str, /) -> int:
        with self._lock:
            thread = threading.get_ident()
            *lines, rest = (self._partial.pop(thread, "") + text).split("\n")
            if len(rest) > LONGEST_PARTIAL:
                lines.append(rest)
                rest = ""
            if rest:
                self._partial[thread] = rest
            self._send(lines)
        return len(text)

    def writelines(self, lines: Iterable[str], /) -> None:  # type: ignore[override] - narrowed to text
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Nothing: whole lines are sent at once, the others wait for their end."""

    def end_lines(self) -> None:
        """Send what lacks its newline, of all threads."""
        with self._lock:
            rests = list(self._partial.values())
            self._partial.clear()
            self._send(rests)

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def _send(self, lines: list[str]) -> None:
        if not lines:
            return
        label = self._describe()
        for line in lines:
            _write_all(self._descriptor, f"[{label}] {_as_seen(line)}\n".encode(errors="replace"))


class _LabelledBytes(io.RawIOBase):
    def __init__(self, text: LabelledStream) -> None:
        super().__init__()
        self._text = text
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, data: object, /) -> int:  # type: ignore[override] - any buffer
        raw = bytes(cast(bytes, data))
        self._text.write(self._decoder.decode(raw))
        return len(raw)

    def fileno(self) -> int:
        return self._text.fileno()

    def writable(self) -> bool:
        return True


def _as_seen(line: str) -> str:
    """The line as a terminal shows it after the carriage returns in it."""
    return line.rstrip("\r").rpartition("\r")[2]


def _write_all(descriptor: int, data: bytes) -> None:
    # One call is enough but for a full pipe or a signal; a reader that is gone must not fail the job.
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        return


class LabelledOutput:
    """Both standard streams of an executor while they are labelled."""

    def __init__(self, describe: Callable[[], str]) -> None:
        self._former = (sys.stdout, sys.stderr)
        self._streams = (LabelledStream(1, describe), LabelledStream(2, describe))
        for stream in self._former:
            stream.flush()
        sys.stdout, sys.stderr = cast(tuple[TextIO, TextIO], self._streams)

    def end_of_job(self) -> None:
        """Send lines that the job left without their end, still under its label."""
        for stream in self._streams:
            stream.end_lines()

    def restore(self) -> None:
        """Put the former streams back."""
        self.end_of_job()
        sys.stdout, sys.stderr = self._former


def label_output(describe: Callable[[], str]) -> LabelledOutput:
    """
    Replace ``sys.stdout`` and ``sys.stderr`` of this process by labelled ones.

    ``describe`` is asked at each line and gives the label without brackets: ``1 step 3f2a91c4``.
    """
    return LabelledOutput(describe)
