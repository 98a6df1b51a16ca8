"""How a process ended, in words."""

from __future__ import annotations

import signal
from typing import Final

_KILLED_FROM_OUTSIDE: Final = " (not by its supervisor: perhaps the system ran out of memory)"


def describe_exit(code: int, *, killed_by_us: bool) -> str:
    """To be read after the name of the process; -N for one that signal N killed."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = _KILLED_FROM_OUTSIDE if code == -signal.SIGKILL and not killed_by_us else ""
    return f"was killed by {name}{hint}"
