"""What was raised in another process, known here by its name and text."""

from __future__ import annotations

from typing import Self


class RaisedInCopy(Exception):
    """Stands for an exception that stayed where it was raised; ``formatted`` is its traceback."""

    formatted = ""

    @classmethod
    def named(cls, name: str, text: str, formatted: str) -> Self:
        """One that is shown as that exception would be."""
        error = type(name, (cls,), {})(text)
        error.formatted = formatted
        return error
