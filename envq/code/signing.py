"""Signatures for those who do not trust everybody that may write to Redis; off where no key is set.

HMAC-SHA256 (RFC 2104) over parts that each carry their length, behind a purpose: what is signed for one use is not
valid for another.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from envq.settings import signing_keys

LENGTH: Final = 8  # bytes that say how long a part is


class Purpose(StrEnum):
    """What a signature is good for."""

    JOB = "job"
    META = "meta"
    RESULT = "result"
    CODE = "code"
    DECLARATION = "declaration"


@dataclass(frozen=True)
class Keyring:
    """Keys of equal right: the first signs, each verifies, so that keys can be changed while all run. May be empty."""

    keys: tuple[bytes, ...] = field(default=(), repr=False)

    def __bool__(self) -> bool:
        return bool(self.keys)

    def sign(self, purpose: Purpose, parts: Iterable[Any]) -> str:
        """The signature, as hexadecimal digits."""
        return _mac(self.keys[0], _message(purpose, parts))

    def verify(self, purpose: Purpose, parts: Iterable[Any], signature: str | bytes) -> bool:
        """Whether one of the keys made this signature for just these parts."""
        given = signature.encode(errors="replace") if isinstance(signature, str) else signature
        message = _message(purpose, parts)
        return any(hmac.compare_digest(_mac(key, message).encode(), given) for key in self.keys)


class _Process:
    """The keys of this process, read once."""

    jobs: Keyring | None = None
    declarations: Keyring | None = None


def job_keys() -> Keyring:
    """For jobs, their code and their results; raises ConfigurationError for a key that cannot be used."""
    if _Process.jobs is None:
        _Process.jobs = Keyring(signing_keys("ENVQ_SIGNING_KEY"))
    return _Process.jobs


def declaration_keys() -> Keyring:
    """For declarations; the same as for jobs where none is given."""
    if _Process.declarations is None:
        _Process.declarations = Keyring(signing_keys("ENVQ_DECLARATION_KEY")) or job_keys()
    return _Process.declarations


def check_keys() -> None:
    """Raise ConfigurationError for keys that cannot be used, before anything depends on them."""
    job_keys()
    declaration_keys()


def signed() -> str:
    """What this process takes with a signature only: "" for nothing."""
    kinds = {"jobs": job_keys(), "declarations": declaration_keys()}
    return " and ".join(kind for kind, keys in kinds.items() if keys)


def forget_keys() -> None:
    """Read them again at the next use."""
    _Process.jobs = _Process.declarations = None


def stored_form(value: Any) -> bytes:
    """A value as it stands in Redis: what a reader will see."""
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else repr(value)).encode()


def prefix(purpose: Purpose, parts: Iterable[Any]) -> bytes:
    """The beginning of a message, for many that begin alike."""
    return b"".join(_piece(stored_form(part)) for part in (str(purpose), *parts))


def sign_rest(keys: Keyring, beginning: bytes, *parts: bytes) -> str:
    """The signature of a message that begins with a ``prefix``."""
    return _mac(keys.keys[0], beginning + b"".join(map(_piece, parts)))


def _message(purpose: Purpose, parts: Iterable[Any]) -> bytes:
    return prefix(purpose, parts)


def _piece(part: bytes) -> bytes:
    return len(part).to_bytes(LENGTH, "big") + part


def _mac(key: bytes, message: bytes) -> str:
    return hmac.digest(key, message, "sha256").hex()
