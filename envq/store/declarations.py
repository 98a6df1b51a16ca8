"""The store of declarations: who declared what, in which version, and the generation that makes it seen."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast

from redis import Redis

from envq.code.payload import Blob
from envq.code.signing import declaration_keys
from envq.errors import InvalidDeclaration, NotDeclared, PayloadError, did_you_mean
from envq.store.code_store import CodeStore
from envq.store.events import emit, event
from envq.store.keys import Keys
from envq.store.records import Declaration, EventKind
from envq.store.scripts import DeclarationChange, change_declaration
from envq.store.seal import Seal

log = logging.getLogger("envq.env")

OLD_CODE_TTL_S: Final = 24 * 3600  # an executor that still builds the old version may need its code
HISTORY_KEPT: Final = 8

Change = Literal["new", "replaced", "unchanged", "options", "older"]


@dataclass(frozen=True)
class Published:
    """What became of a declaration: the one that stands now, and how it came about."""

    declaration: Declaration
    change: Change
    taking_turns: bool = False  # the code was current before, and another process replaced it: two releases, perhaps
    previous: Declaration | None = None  # what was replaced
    generation: str = ""  # of the store, then; "" where there is no server


@dataclass(frozen=True)
class Snapshot:
    """All declarations, at least those of this generation."""

    generation: str
    declarations: dict[str, Declaration]
    refused: frozenset[str] = frozenset()  # names whose declaration is not signed as it must be; left out above


class DeclarationStore:
    """Reads and writes declarations; every change is a compare-and-set on what was read."""

    def __init__(self, connection: Redis, keys: Keys, *, wait_s: float = 0) -> None:
        """``wait_s``: how long reading code waits for a server that is away."""
        self._connection = connection
        self._keys = keys
        self._code = CodeStore(connection, keys, declaration_keys, wait_s=wait_s)
        self._seal = Seal(connection, keys)

    def snapshot(self, *, checked: bool = False) -> Snapshot:
        """
        Everything declared, with its generation.

        Args:
            checked: leave out what must not be built, where declarations are signed
        """
        # No transaction: before Redis 7.2 one is refused whole at maxmemory. The generation first: what is declared
        # meanwhile has another one, and is looked at again.
        with self._connection.pipeline(transaction=False) as pipeline:
            pipeline.get(self._keys.generation)
            pipeline.hgetall(self._keys.declarations)
            pipeline.get(self._keys.store_id)
            replies = cast(tuple[bytes | None, dict[bytes, bytes], bytes | None], tuple(pipeline.execute()))
        generation, headers, store = replies
        return self._snapshot_of(_text(generation), headers, _text(store), checked=checked)

    def _snapshot_of(self, generation: str, headers: dict[bytes, bytes], store: str, *, checked: bool) -> Snapshot:
        if not checked:
            return Snapshot(generation, dict(_readable(headers)))
        signed = {name: header for name, header in headers.items() if self._may_be_used(name, header, store)}
        refused = frozenset(name.decode(errors="replace") for name in headers.keys() - signed.keys())
        return Snapshot(generation, dict(_readable(signed)), refused)

    def generation(self) -> str:
        """The generation of the moment, "" where nothing was ever declared."""
        return _text(cast(bytes | None, cast(Any, self._connection).get(self._keys.generation)))

    def get(self, name: str) -> Declaration:
        """One declaration; raises NotDeclared, naming those that exist, InvalidDeclaration where it cannot be read."""
        header = self._header(name)
        if not header:
            raise not_declared(name, self.snapshot().declarations)
        try:
            declaration = Declaration.from_json(header)
        except ValueError as error:
            raise InvalidDeclaration(
                f"the declaration of {name!r} in Redis cannot be read ({error}); "
                f"declare it again, or remove it: envq env remove {name}",
                name,
            ) from None
        if not self._seal.holds(header):
            raise PayloadError(_not_signed(name))
        return declaration

    def code(self, declaration: Declaration) -> Blob:
        """The packed code of a declaration; raises CodeMissing."""
        return self._code.get(declaration.digest, f"variable {declaration.name}")

    def publish(self, wanted: Declaration, blob: Blob) -> Published:
        """
        Declare; ``wanted.version`` counts only where ``wanted.explicit``.

        One with a ``life`` was published before: where the store has forgotten it, it comes back as it was, and what
        executors hold of it is still valid.

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
        """Ask every executor to build the current version again; raises what `get` raises."""
        self.get(name)

        def decide(current: Declaration | None) -> Published:
            if current is None:
                raise not_declared(name, self.snapshot().declarations)
            return Published(replace(current, epoch=current.epoch + 1), "replaced")

        rebuilt = self._change(name, decide, None).declaration
        self._tell(EventKind.VARIABLE_DECLARED, rebuilt)
        return rebuilt

    def remove(self, name: str) -> Declaration:
        """Take a declaration away, on every executor; returns it; raises NotDeclared."""
        while True:
            header = self._header(name)
            if not header:
                raise not_declared(name, self.snapshot().declarations)
            current = _read(header) or Declaration(name, version=0, digest="")
            if self._write(header, current, None, b""):
                self._tell(EventKind.VARIABLE_REMOVED, current)
                return current

    def _tell(self, kind: EventKind, declaration: Declaration) -> None:
        happened = event(kind, env=declaration.name, env_version=declaration.version, detail=declaration.declared_by)
        emit(self._connection, self._keys, happened)

    def _change(self, name: str, decide: Callable[[Declaration | None], Published], blob: Blob | None) -> Published:
        while True:
            generation = self.generation()  # before the header: at most it is older than that
            header = self._header(name)
            current = self._standing(name, header)
            published = decide(current)
            if published.change in ("unchanged", "older"):
                return replace(published, generation=generation)
            packed = self._code.packed(blob) if blob else b""
            if written := self._write(header, current, published.declaration, packed):
                return replace(published, generation=written)

    def _standing(self, name: str, header: bytes) -> Declaration | None:
        """The declaration in this header, without its signature; None also for one that does not count."""
        standing = _read(header)  # what nobody can read is replaced
        if standing is None:
            return None
        if not self._seal.holds(header):
            log.warning("%s; it is replaced", _not_signed(name))
            return None
        return replace(standing, signature="")

    def _may_be_used(self, name: bytes, header: bytes, store: str) -> bool:
        try:
            holds = self._seal.holds(header, store)
        except (ValueError, RecursionError):
            return True  # said to be unreadable, as without a key
        if not holds:
            log.error("%s; it is not built", _not_signed(name.decode(errors="replace")))
        return holds

    def _write(self, expected: bytes, current: Declaration | None, new: Declaration | None, blob: bytes) -> str:
        """Compare with the header as read, and write; None for ``new`` removes. "" if somebody was faster."""
        standing = cast(Declaration, new or current)
        before = current or standing
        change = DeclarationChange(
            name=standing.name,
            expected=expected,
            header=self._seal.sign(new.to_json()) if new else "",
            new_digest=standing.digest,
            old_digest=before.digest,
            blob=blob,
            token=secrets.token_hex(4),
            message=standing.name,
            old_code_ttl_s=OLD_CODE_TTL_S,
            version_before=before.version,
            starts_over=new is None or new.identity != before.identity,
        )
        return change_declaration(self._connection, self._keys, change)

    def _header(self, name: str) -> bytes:
        return cast(bytes | None, cast(Any, self._connection).hget(self._keys.declarations, name)) or b""


def _readable(headers: dict[bytes, bytes]) -> Iterator[tuple[str, Declaration]]:
    for name, header in headers.items():
        try:
            declaration = Declaration.from_json(header)
            if declaration.name.encode() != name:
                raise ValueError(f"it is that of {declaration.name!r}")
            yield declaration.name, declaration
        except ValueError as error:  # one that nobody can read must not stop every executor
            log.error("the declaration %r cannot be read and is left out: %s", name, error)


def _text(reply: bytes | None) -> str:
    return (reply or b"").decode(errors="replace")


def _not_signed(name: str) -> str:
    return f"the declaration of environment variable {name!r} is not signed, or its signature does not fit"


def _read(header: bytes) -> Declaration | None:
    try:
        return Declaration.from_json(header)
    except ValueError:
        return None


def not_declared(name: str, known: dict[str, Declaration]) -> NotDeclared:
    """The error for a name nobody declared; it lists those that are."""
    names = ", ".join(sorted(known)) or "none"
    return NotDeclared(
        f"environment variable {name!r} is not declared{did_you_mean(name, known)} (declared: {names}); "
        f"correct the name, or declare it on a driver: envq.env.{name} = envq.EnvironmentVariable(...)",
        name,
    )


def _decide(current: Declaration | None, wanted: Declaration) -> Published:
    if current is None and wanted.life:
        return Published(wanted, "new")
    if current is None:
        # An executor that has not noticed a removal must not take this for what was removed.
        life, epoch = secrets.token_hex(4), secrets.randbits(32)
        version = wanted.version if wanted.explicit else 1
        return Published(replace(wanted, version=version, life=life, epoch=epoch), "new")
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
    new = replace(wanted, version=version, epoch=current.epoch, life=current.life, history=history)
    # A notebook whose cells are run back and forth takes turns with nobody but itself.
    turns = wanted.digest in current.history and wanted.declared_by != current.declared_by
    return Published(new, "replaced", taking_turns=turns, previous=current)


def _keep_version(current: Declaration, wanted: Declaration) -> Published:
    kept = replace(
        wanted,
        version=current.version,
        explicit=current.explicit or wanted.explicit,
        epoch=current.epoch,
        life=current.life,
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
