"""Unpickling with errors that say what is missing here and what to do about it."""

from __future__ import annotations

import pickle
import sys
from typing import Any, Final

from envq.errors import PayloadError, PythonVersionMismatch

MINOR: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
# How pickle says that a module has no such name.
_MISSING_NAME: Final = "Can't get attribute"


def check_python(python: str, what: str) -> None:
    """Raise PythonVersionMismatch if code sent by value from Python ``python`` cannot run here."""
    if python != MINOR:
        raise PythonVersionMismatch(
            f"{what} was sent by value from Python {python} and cannot run here on Python {MINOR}; "
            f"start a worker on Python {python}, or put the code in a module that both can import"
        )


def loads(body: bytes, what: str) -> Any:
    """Unpickle; whatever goes wrong becomes a PayloadError that names ``what``."""
    try:
        return pickle.loads(body)
    except Exception as error:
        raise PayloadError(f"{what} cannot be loaded here: {explain(error)}") from error


def explain(error: Exception) -> str:
    """One clause with what was missing, and the advice for it."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        module = error.name.partition(".")[0]
        return (
            f"there is no module {error.name!r} on this worker; install {module!r} here, "
            f"or call envq.ship({module!r}) on the driver to send its code along"
        )
    if isinstance(error, ImportError) or _MISSING_NAME in str(error):
        return (
            f"{error}; install the driver's version of that module on the worker (and restart it), "
            "or call envq.ship(module) on the driver to send its code along"
        )
    return f"{type(error).__name__}: {error}"
