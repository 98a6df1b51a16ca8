"""What was raised in another process, known here by its name and text."""

from __future__ import annotations


class RaisedInCopy(Exception):
    """Stands for an exception that stayed where it was raised; ``formatted`` is its traceback."""

    formatted = ""


def raised_in_copy(name: str, text: str, formatted: str) -> RaisedInCopy:
    """One that is shown as that exception would be."""
    error: RaisedInCopy = type(name, (RaisedInCopy,), {})(text)
    error.formatted = formatted
    return error
