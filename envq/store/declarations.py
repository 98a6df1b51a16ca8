"""The store of declarations: who declared what, in which version, and the generation that makes it seen."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast

from redis import Redis

from envq.code.payload import Blob
from envq.errors import NotDeclared
from envq.store.code_store import CodeStore
from envq.store.events import emit, event
from envq.store.keys import Keys
from envq.store.records import Declaration, EventKind
from envq.store.scripts import DeclarationChange, change_declaration

OLD_CODE_TTL_S: Final = 24 * 3600  # an executor that still builds the old version may need its code
HISTORY_KEPT: Final = 8

Change = Literal["new", "replaced", "unchanged", "options", "older"]


@dataclass(frozen=True)
class Published:
    """What became of a declaration: the one that stands now, and how it came about."""

    declaration: Declaration
    change: Change
    taking_turns: bool = False  # the code was current before: two releases declare against each other


@dataclass(frozen=True)
class Snapshot:
    """All declarations and the generation they belong to, read in one transaction."""

    generation: str
    declarations: dict[str, Declaration]


class DeclarationStore:
    """Reads and writes declarations; every change is a compare-and-set on what was read."""

    def __init__(self, connection: Redis, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys
        self._code = CodeStore(connection, keys)

    def snapshot(self) -> Snapshot:
        """Everything declared, with its generation."""
        with self._connection.pipeline(transaction=True) as pipeline:
            pipeline.get(self._keys.generation)
            pipeline.hgetall(self._keys.declarations)
            generation, headers = cast(tuple[bytes | None, dict[bytes, bytes]], tuple(pipeline.execute()))
        return Snapshot(
            (generation or b"").decode(),
            {name.decode(): Declaration.from_json(header) for name, header in headers.items()},
        )

    def get(self, name: str) -> Declaration:
        """One declaration; raises NotDeclared, naming those that exist."""
        header = self._header(name)
        if not header:
            raise not_declared(name, self.snapshot().declarations)
        return Declaration.from_json(header)

    def code(self, declaration: Declaration) -> Blob:
        """The packed code of a declaration; raises CodeMissing."""
        return self._code.get(declaration.digest, f"variable {declaration.name}")

    def publish(self, wanted: Declaration, blob: Blob) -> Published:
        """
        Declare; ``wanted.version`` counts only where ``wanted.explicit``.

        The same code with the same options changes nothing and does not ring the bell. The last
        declaration wins, except that an explicit version never replaces a higher one.
        """

        def decide(current: Declaration | None) -> Published:
            return _decide(current, wanted)

        published = self._change(wanted.name, decide, blob)
        if published.change in ("new", "replaced", "options"):
            self._tell(EventKind.VARIABLE_DECLARED, published.declaration)
        if published.change == "unchanged":
            self._code.keep(blob)
        return published

    def rebuild(self, name: str) -> Declaration:
        """Ask every executor to build the current version again; raises NotDeclared."""

        def decide(current: Declaration | None) -> Published:
            if current is None:
                raise not_declared(name, self.snapshot().declarations)
            return Published(replace(current, epoch=current.epoch + 1), "replaced")

        rebuilt = self._change(name, decide, None).declaration
        self._lift_quarantine(rebuilt)
        self._tell(EventKind.VARIABLE_DECLARED, rebuilt)
        return rebuilt

    def remove(self, name: str) -> Declaration:
        """Take a declaration away, on every executor; returns it; raises NotDeclared."""
        while True:
            header = self._header(name)
            if not header:
                raise not_declared(name, self.snapshot().declarations)
            current = Declaration.from_json(header)
            if self._write(name, header, "", current.digest, current.digest, b""):
                self._lift_quarantine(current)  # the next declaration is version 1 again
                self._tell(EventKind.VARIABLE_REMOVED, current)
                return current

    def _tell(self, kind: EventKind, declaration: Declaration) -> None:
        happened = event(kind, env=declaration.name, env_version=declaration.version, detail=declaration.declared_by)
        emit(self._connection, self._keys, happened)

    def _lift_quarantine(self, declaration: Declaration) -> None:
        self._connection.delete(self._keys.tries(declaration.name, declaration.version))

    def _change(self, name: str, decide: Callable[[Declaration | None], Published], blob: Blob | None) -> Published:
        while True:
            header = self._header(name)
            current = Declaration.from_json(header) if header else None
            published = decide(current)
            if published.change in ("unchanged", "older"):
                return published
            new = published.declaration
            packed = blob.pack() if blob else b""
            if self._write(name, header, new.to_json(), new.digest, current.digest if current else "", packed):
                if current and current.version != new.version:
                    self._lift_quarantine(current)  # its number comes back where the variable is removed
                return published

    def _write(self, name: str, expected: str, header: str, new: str, old: str, blob: bytes) -> bool:  # noqa: PLR0913 - one compare-and-set
        change = DeclarationChange(
            name=name,
            expected=expected,
            header=header,
            new_digest=new,
            old_digest=old,
            blob=blob,
            token=secrets.token_hex(4),
            message=name,
            old_code_ttl_s=OLD_CODE_TTL_S,
        )
        return bool(change_declaration(self._connection, self._keys, change))

    def _header(self, name: str) -> str:
        header = cast(bytes | None, cast(Any, self._connection).hget(self._keys.declarations, name))
        return (header or b"").decode()


def not_declared(name: str, known: dict[str, Declaration]) -> NotDeclared:
    """The error for a name nobody declared; it lists those that are."""
    names = ", ".join(sorted(known)) or "none"
    return NotDeclared(
        f"environment variable {name!r} is not declared (declared: {names}); "
        f"declare it on a driver: envq.env.{name} = envq.EnvironmentVariable(...)",
        name,
    )


def _decide(current: Declaration | None, wanted: Declaration) -> Published:
    if current is None:
        # An executor that has not noticed a removal must not take this for what was removed.
        epoch = secrets.randbits(32)
        return Published(replace(wanted, version=wanted.version if wanted.explicit else 1, epoch=epoch), "new")
    if wanted.explicit and (wanted.version < current.version):
        return Published(current, "older")
    same_code = wanted.digest == current.digest
    if wanted.explicit and current.explicit and wanted.version == current.version:
        same_code = True
        wanted = replace(wanted, digest=current.digest)
    if same_code and (not wanted.explicit or wanted.version == current.version):
        return _keep_version(current, wanted)
    history = [*current.history, current.digest][-HISTORY_KEPT:]
    version = wanted.version if wanted.explicit else current.version + 1
    new = replace(wanted, version=version, epoch=current.epoch, history=history)
    return Published(new, "replaced", taking_turns=wanted.digest in history[:-1] or wanted.digest in current.history)


def _keep_version(current: Declaration, wanted: Declaration) -> Published:
    kept = replace(
        wanted,
        version=current.version,
        explicit=current.explicit or wanted.explicit,
        epoch=current.epoch,
        history=current.history,
        declared_at=current.declared_at,
        declared_by=current.declared_by,
        by_value=current.by_value,
        python=current.python,
        cloudpickle=current.cloudpickle,
        size=current.size,
    )
    if kept == current:
        return Published(current, "unchanged")
    return Published(replace(kept, declared_at=wanted.declared_at, declared_by=wanted.declared_by), "options")
