"""SIGTERM and Ctrl-C for commands that run until they are stopped."""

from __future__ import annotations

import os
import signal
from types import FrameType


class Stopped(BaseException):
    """The command was asked to end; a clean end, whatever it was doing."""


def end_at_once() -> None:
    """
    Until something better is installed, SIGTERM and SIGINT end the process with code 0.

    For the time in which nothing has been started yet. Not by an exception: imports are under way, and code in
    them may catch it.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit_now)


def unwind_on_sigterm() -> None:
    """SIGTERM raises Stopped in the main thread, so that ``with`` blocks stop what they started."""
    signal.signal(signal.SIGTERM, _raise_stopped)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def ignore() -> None:
    """From here on neither ends the process, which is about to end: what it clears up must not be broken off."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _exit_now(number: int, frame: FrameType | None) -> None:
    os._exit(0)


def _raise_stopped(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # once is enough: the clean-up must not be broken off
    raise Stopped
