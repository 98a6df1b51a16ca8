"""A terminal that workers' lines and a prompt share."""

from __future__ import annotations

import shutil
import sys
import threading
from typing import Final

from envq.local_workers import StreamName, show_line

try:
    import readline
except ImportError:  # some builds of Python lack it; the prompt then has no line to restore
    readline = None

_UP: Final = "\x1b[A"
_CLEAR_BELOW: Final = "\x1b[J"


class Terminal:
    """Shows lines from any thread; while a prompt is open, above it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._prompt: str | None = None

    def read(self, prompt: str = "") -> str:
        """Ask for a line, as ``input`` does."""
        with self._lock:
            self._prompt = prompt
        try:
            return input(prompt)
        finally:
            with self._lock:
                self._prompt = None

    def show(self, stream: StreamName, line: str) -> None:
        """Print a whole line; the prompt and what was typed so far are drawn again below it."""
        with self._lock:
            if self._prompt is None:
                show_line(stream, line)
            else:
                typed = self._prompt + (readline.get_line_buffer() if readline else "")
                sys.stdout.write(above(line, typed, shutil.get_terminal_size().columns))
                sys.stdout.flush()


def above(line: str, typed: str, columns: int) -> str:
    """What to write so that ``line`` appears above ``typed``, the open line, which may be wrapped."""
    rows_above = len(typed) // max(columns, 1)
    return f"\r{_UP * rows_above}{_CLEAR_BELOW}{line}\n{typed}"
