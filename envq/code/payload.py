"""Code as it travels: a readable header that is checked before the pickle behind it is touched."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, cast

import cloudpickle  # pyright: ignore[reportMissingTypeStubs]

from envq.clock import iso, utc_now
from envq.code.arguments import load_arguments, pack_arguments
from envq.code.digest import code_digest
from envq.code.loading import MINOR, check_python, loads
from envq.code.path_reference import PathReference
from envq.code.preflight import check_size, checked_dump, warn_late_imports, warn_size
from envq.code.shipping import ship, travels_by_value
from envq.code.signing import Keyring, Purpose
from envq.errors import PayloadError
from envq.settings import Limits

__all__ = [
    # what travels, and how it comes back
    "Blob", "Header", "MINOR", "load_code", "pack_code",
    # by value or by name
    "PathReference", "ship", "travels_by_value",
    # a job's arguments
    "load_arguments", "pack_arguments",
]  # fmt: skip

FORMAT: Final = 1
_MAGIC: Final = b"envq1 "


@dataclass(frozen=True)
class Header:
    """What anybody may know about a blob without unpickling it."""

    format: int
    python: str  # minor version, "3.11"
    cloudpickle: str
    by_value: bool  # holds code that only the same Python minor version can run
    digest: str
    size: int  # bytes of the body
    what: str  # "variable cartpole", "function step"
    created_at: str
    host: str
    pid: int
    signature: str = ""  # of all that decides what is run; empty where nobody has a key

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Header:
        """Read it back, whatever fields a later envq added; PayloadError for anything else."""
        try:
            values = cast("dict[str, Any]", json.loads(text))
            known = [field.name for field in fields(cls) if field.name != "signature"]
            return cls(**{name: values[name] for name in known}, signature=values.get("signature", ""))
        except (ValueError, KeyError, TypeError) as error:
            raise PayloadError(f"not a header of packed code: {text[:80]!r}") from error


@dataclass(frozen=True)
class Blob:
    """Packed code: header and pickle."""

    header: Header
    body: bytes

    def pack(self) -> bytes:
        """The bytes stored in Redis: a line that people can read, then the pickle."""
        return _MAGIC + self.header.to_json().encode() + b"\n" + self.body

    def signed(self, keys: Keyring, namespace: str) -> Blob:
        """The same, signed for this namespace; as it is where there is no key."""
        if not keys:
            return self
        return replace(self, header=replace(self.header, signature=keys.sign(Purpose.CODE, self._covered(namespace))))

    def check(self, keys: Keyring, namespace: str, digest: str) -> None:
        """Raise PayloadError where there are keys and none of them signed this as the code with that digest."""
        if keys and not (
            self.header.digest == digest and keys.verify(Purpose.CODE, self._covered(namespace), self.header.signature)
        ):
            raise PayloadError(
                f"the code of {self.header.what} (digest {digest[:12]}) is not signed, or its signature does not fit; "
                "it is not loaded. Send it again from a process that has the key"
            )

    def _covered(self, namespace: str) -> tuple[Any, ...]:
        header = self.header
        return namespace, header.digest, header.format, header.python, int(header.by_value), self.body

    @classmethod
    def unpack(cls, data: bytes) -> Blob:
        """Split stored bytes without unpickling; raises PayloadError for what envq did not pack."""
        line, newline, body = data.partition(b"\n")
        if not newline or not line.startswith(_MAGIC):
            raise PayloadError(f"not code that envq packed: it begins with {data[:20]!r}")
        header = Header.from_json(line.removeprefix(_MAGIC))
        if header.size != len(body):
            raise PayloadError(f"the code of {header.what} has {len(body)} bytes instead of {header.size}")
        return cls(header, body)


def pack_code(obj: object, *, what: str, limits: Limits) -> Blob:
    """
    Pack a callable, or a tuple of callables, for a worker.

    Args:
        what: Its name in errors and in the header: "variable cartpole", "function step".

    Raises PayloadError naming the captured variable that cannot travel, PayloadTooLarge over
    ``limits.max_bytes``.
    """
    body, by_value, late_imports = checked_dump(obj, what)
    check_size(len(body), obj, what, limits)
    digest = _digest(obj, what)
    warn_size(len(body), what, limits, once_for=digest)
    warn_late_imports(late_imports, what)
    header = Header(
        format=FORMAT,
        python=MINOR,
        cloudpickle=cloudpickle.__version__,
        by_value=by_value,
        digest=digest,
        size=len(body),
        what=what,
        created_at=iso(utc_now()),
        host=socket.gethostname(),
        pid=os.getpid(),
    )
    return Blob(header, body)


def _digest(obj: object, what: str) -> str:
    try:
        return code_digest(obj)
    except PayloadError as error:
        raise PayloadError(f"{what}: {error}") from error


def load_code(blob: Blob) -> Any:
    """
    What :func:`pack_code` packed, with every PathReference resolved.

    Raises PythonVersionMismatch or PayloadError before anything is unpickled where that cannot
    work, and PayloadError naming the missing module or name where it did not.
    """
    header = blob.header
    if header.format > FORMAT:
        raise PayloadError(f"{header.what} was packed by a newer envq; upgrade this worker")
    if header.by_value:
        check_python(header.python, header.what)
    return _resolved(loads(blob.body, header.what))


def _resolved(obj: Any) -> Any:
    if isinstance(obj, PathReference):
        return obj.resolve()
    if type(obj) is tuple:
        return tuple(_resolved(item) for item in cast("tuple[Any, ...]", obj))
    return obj
