"""Signed declarations that were true once: put back by somebody without a key, they are no news."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from envq.code.signing import declaration_keys
from envq.store.declarations import Snapshot
from envq.store.records import Declaration

log = logging.getLogger("envq.env")

_Height = tuple[int, int]


class SeenDeclarations:
    """What this executor has seen of each name; it remembers as long as it lives."""

    def __init__(self) -> None:
        self._current: Final[dict[str, Declaration]] = {}
        self._ended: Final[set[tuple[str, str]]] = set()  # name and life of what was removed or replaced

    def without_replays(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot, in which what is refused, or older than what was seen, stays as it was before."""
        if not declaration_keys():
            return snapshot
        declarations = dict(snapshot.declarations)
        refused = set(snapshot.refused)
        for name, declaration in snapshot.declarations.items():
            if self._is_replay(declaration):
                log.error(
                    "the declaration of environment variable %r, version %d, is older than one that was seen here; "
                    "it is not built",
                    name,
                    declaration.version,
                )
                del declarations[name]
                refused.add(name)
        for name in refused & self._current.keys():
            declarations[name] = self._current[name]
        return replace(snapshot, declarations=declarations, refused=frozenset(refused))

    def note(self, snapshot: Snapshot) -> None:
        """Remember what is taken over."""
        for name, before in list(self._current.items()):
            now = snapshot.declarations.get(name)
            if now is None or now.life != before.life:
                self._ended.add((name, before.life))
                del self._current[name]
        self._current.update(snapshot.declarations)

    def _is_replay(self, declaration: Declaration) -> bool:
        if (declaration.name, declaration.life) in self._ended:
            return True
        seen = self._current.get(declaration.name)
        return seen is not None and seen.life == declaration.life and _height(declaration) < _height(seen)


def _height(declaration: Declaration) -> _Height:
    return declaration.version, declaration.epoch
