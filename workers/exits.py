"""How a process ended, in words."""

from __future__ import annotations

import platform
import signal
from typing import Final

_KILLED_FROM_OUTSIDE: Final = " (not by its supervisor: perhaps the system ran out of memory)"
# Apple's frameworks abort or crash in a process that was forked and not started anew.
_FORKED_ON_MACOS: Final = (
    " (on macOS many libraries do not survive a fork: use --start-method spawn, without --isolate)"
)


def describe_exit(code: int, *, killed_by_us: bool) -> str:
    """To be read after the name of the process; -N for one that signal N killed."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}{_hint(-code, killed_by_us)}"


def _hint(number: int, killed_by_us: bool) -> str:
    if killed_by_us:
        return ""
    if number == signal.SIGKILL:
        return _KILLED_FROM_OUTSIDE
    crashed = number in (signal.SIGABRT, signal.SIGSEGV)
    return _FORKED_ON_MACOS if crashed and platform.system() == "Darwin" else ""
