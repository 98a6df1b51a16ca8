"""Catching up with what was declared, between jobs, whenever the generation differs (C12)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from envq.recipes import stored_recipe
from envq.runtime import Recipe, Runtime, State
from envq.store.declarations import DeclarationStore, Snapshot
from envq.store.generation import turned_back
from envq.store.records import Declaration
from envq.workers.execution.replays import SeenDeclarations

FORGOTTEN_SERVED_S: Final = 60

_SERVING: Final = (State.READY, State.UPDATE_FAILED)
_FAILED: Final = (State.FAILED, State.QUARANTINED)

log = logging.getLogger("envq.env")


class CatchUp:
    """Reads the store and hands the runtime what this executor has to hold."""

    def __init__(
        self, store: DeclarationStore, runtime: Callable[[], Runtime], queues: Iterable[str], *, isolate: bool = False
    ) -> None:
        """``isolate``: jobs run in copies of this process."""
        self._store = store
        self._isolate = isolate
        self._runtime = runtime
        self._queues = frozenset(queues)
        self._snapshot = Snapshot("", {})
        self._memory = SeenDeclarations()
        self._recipes: dict[str, Recipe] = {}
        self._forgotten: dict[str, Declaration] = {}  # by the store; served until it says something else of them
        self._served_until = 0.0

    @property
    def generation(self) -> str:
        """The generation this executor has seen: built, or tried and failed."""
        return self._snapshot.generation

    def is_current(self, generation: str) -> bool:
        """Whether there is nothing to catch up with, where the store has this generation."""
        if self._forgotten and time.monotonic() > self._served_until:
            return False
        return generation == self._snapshot.generation

    @property
    def declared(self) -> Mapping[str, Declaration]:
        """Everything declared, whether this worker builds it or not."""
        return self._snapshot.declarations

    def pending(self) -> tuple[Snapshot, dict[str, Recipe], bool]:
        """
        What the store says now, as recipes, and whether taking it over would run an initializer.

        What a store has forgotten that was emptied, or restored from an older copy, stays for a while: its driver
        declares it again, as the same version, and a model that takes minutes to build need not be built for that.
        """
        stored = self._memory.without_replays(self._store.snapshot(checked=True))
        if turned_back(self.generation, stored.generation):
            self._forgotten, self._served_until = dict(self.declared), time.monotonic() + FORGOTTEN_SERVED_S
            log.warning("Redis has lost declarations; what is built goes on serving for %d s", FORGOTTEN_SERVED_S)
        elif self._forgotten and time.monotonic() > self._served_until:
            self._forgotten = {}
        forgotten = {name: each for name, each in self._forgotten.items() if name not in stored.refused}
        snapshot = replace(stored, declarations=forgotten | stored.declarations)
        recipes = {
            name: stored_recipe(self._as_built_here(declaration), self._store.code)
            if name in stored.declarations
            else self._recipes[name]
            for name, declaration in snapshot.declarations.items()
            if self._is_for_us(declaration)
        }
        return snapshot, recipes, self._runtime().would_build(recipes)

    def adopt(self, snapshot: Snapshot, recipes: dict[str, Recipe]) -> None:
        """Change over to it; a build that fails leaves its state, nothing is raised."""
        before, self._snapshot, self._recipes = self._snapshot.declarations, snapshot, recipes
        self._memory.note(snapshot)
        # Removed and declared again since we looked: nothing of the life before goes on serving.
        kept = {name: each for name, each in recipes.items() if self._lives_on(name, before)}
        if len(kept) < len(recipes):
            self._runtime().adopt(kept)
        self._runtime().adopt(recipes)

    def open_queues(self, queues: Iterable[str]) -> list[str]:
        """The queues from which jobs may be taken: not those of a required variable that is not built."""
        blocked = self._blocked()
        return [queue for queue in queues if queue not in blocked]

    @property
    def fills_the_room(self) -> bool:
        """Some variable is declared to let go of the old value first: two of it may not fit."""
        return any(each.replace == "free" and self._is_for_us(each) for each in self.declared.values())

    @property
    def held(self) -> list[str]:
        """Variables that serve jobs now."""
        return [value.name for value in self._runtime().states() if value.state in _SERVING]

    def failed(self, names: Collection[str]) -> list[str]:
        """Which of these are declared and could not be built."""
        states = self._runtime().states()
        return [value.name for value in states if value.name in names and value.state in _FAILED]

    def failed_for_good(self) -> list[str]:
        """Variables whose build was given up or refused."""
        runtime = self._runtime()
        if runtime.next_retry is not None:
            return []
        return [value.name for value in runtime.states() if value.state in _FAILED]

    def _blocked(self) -> set[str]:
        required = [each for each in self.declared.values() if each.required and self._is_for_us(each)]
        if not required:
            return set()
        ready = {value.name for value in self._runtime().states() if value.state in _SERVING}
        blocked: set[str] = set()
        for declaration in required:
            if declaration.name not in ready:
                blocked.update(declaration.queues or self._queues)
        return blocked

    def _as_built_here(self, declaration: Declaration) -> Declaration:
        # What a copy builds ends with it: each job would build it again.
        return replace(declaration, build="eager") if self._isolate else declaration

    def _lives_on(self, name: str, before: Mapping[str, Declaration]) -> bool:
        return name not in before or before[name].life == self._snapshot.declarations[name].life

    def _is_for_us(self, declaration: Declaration) -> bool:
        return declaration.queues is None or not self._queues.isdisjoint(declaration.queues)
