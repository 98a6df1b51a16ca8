"""Code that never returns, in three ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# An exception ends the first; the others nothing but a kill.
STATEMENTS: Final = {
    "softly": "threading.Event().wait(60)",
    "without signals": "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); threading.Event().wait(60)",
    "with the interpreter": "ctypes.PyDLL(None).sleep(60)",
}
HANGS: Final = tuple(STATEMENTS)


def hanging(how: str) -> Callable[[], None]:
    """A function that travels by value."""
    statement = STATEMENTS[how]

    def hang() -> None:
        import ctypes
        import signal
        import threading

        exec(statement, {"ctypes": ctypes, "signal": signal, "threading": threading})

    return hang
