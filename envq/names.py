"""Names of queues: which can be used."""

from __future__ import annotations

from typing import Final

from envq.errors import ConfigurationError

FIRST_PRINTABLE: Final = 0x20


def valid_queue_name(name: object) -> str:
    """The name itself; ConfigurationError for what is no text, empty, or holds signs that no log line can show."""
    if not isinstance(name, str):
        raise ConfigurationError(
            f"a queue is given by its name, a text, not by an object of type {type(name).__name__}"
        )
    if not name or any(ord(sign) < FIRST_PRINTABLE or 0xD800 <= ord(sign) <= 0xDFFF for sign in name):
        raise ConfigurationError(f"{name!r} cannot be the name of a queue: it is empty or holds control characters")
    return name
