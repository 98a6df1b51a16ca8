"""What an executor tells about its variables: the slot, Redis, events and the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

from redis import Redis

from envq.runtime import Listener, Recipe, State, TimeLimit, ValueState
from envq.store import events
from envq.store.connection import REDIS_ERRORS
from envq.store.executor_store import ExecutorStore
from envq.store.keys import Keys
from envq.store.records import EventKind, ExecutorInfo, MemoryState, VariableState
from envq.workers.execution.deadline import Deadlines, Work
from envq.workers.execution.memory import Memory, resident_mib
from envq.workers.execution.quarantine import Quarantine
from envq.workers.execution.threads import Threads
from envq.workers.slot import Phase, build_detail

log = logging.getLogger("envq.env")

_REFRESH_S: Final = 2.0
_KINDS: Final = {
    State.READY: EventKind.VARIABLE_READY,
    State.FAILED: EventKind.VARIABLE_FAILED,
    State.UPDATE_FAILED: EventKind.VARIABLE_FAILED,
    State.QUARANTINED: EventKind.VARIABLE_FAILED,
    State.BUILDING: EventKind.VARIABLE_BUILDING,
}


class Reporter(Listener):
    """Writes one executor's state. Fails open, but for the quarantine."""

    def __init__(self, connection: Redis, keys: Keys, info: ExecutorInfo, memory: Memory) -> None:
        self._connection = connection
        self._keys = keys
        self._info = info
        self._memory = memory
        self._store = ExecutorStore(connection, keys)
        self._quarantine = Quarantine(connection, keys, info.host, info.name)
        self._written: tuple[str, str] = ("", "")
        self._counted: list[tuple[int, int]] = []
        self._written_at = 0.0
        self.states: Callable[[], list[ValueState]] = list
        self.state = "starting"
        self.generation = ""
        self.now_building: tuple[str, str] | None = None  # for the slot: name, which build
        self.first_build = False  # what it takes of memory belongs to the variable
        self._rss: dict[str, float] = {}
        self._survived: set[tuple[str, int, str]] = set()
        self._held: set[tuple[str, int, str]] = set()  # what was built with success
        self._told: dict[str, tuple[int, str, int, State, str]] = {}

    # -- Listener ---------------------------------------------------------------------------------------

    def building(self, recipe: Recipe) -> None:
        """
        Refuse what has killed too many processes; else leave a mark, then try.

        What this process has built once is not marked again, or every reset by the initializer would pay
        for it: if such a build kills the process, the supervisor sees it in the slot and leaves the mark.
        """
        if _code(recipe) not in self._survived:
            self._quarantine.mark_try(recipe)
        self.now_building = (recipe.name, build_detail(recipe.identity))
        self.first_build = _code(recipe) not in self._held

    def build_ended(self, recipe: Recipe) -> None:
        """The process survived it."""
        self.now_building = None
        if _code(recipe) in self._survived:
            return
        self._survived.add(_code(recipe))
        self._rss[recipe.name] = round(resident_mib(), 1)
        self._quietly(lambda: self._quarantine.survived(recipe))

    def changed(self, state: ValueState) -> None:
        """Tell watchers and the log, unless it is the coming and going of a reset by the initializer.

        Of a failure the runtime itself has written the log.
        """
        now = (state.version, state.digest, state.epoch, state.state, state.error)
        told = self._told.get(state.name)
        if now == told:
            return
        if state.state is State.BUILDING and told == (*now[:3], State.READY, state.error):
            return
        self._told[state.name] = now
        if state.state is State.READY:
            self._held.add((state.name, state.version, state.digest))
        self.publish()  # before the event: who is woken by it looks there
        kind = _KINDS.get(state.state)
        if kind is not None:
            self._emit(kind, state.name, state.version, detail=state.error.strip().rpartition("\n")[2])
        if state.state is State.READY:
            log.info("%s v%d is ready, built in %.3f s", state.name, state.version, state.build_seconds)

    def reset_failed(self, name: str, reason: str) -> None:
        """A value was rebuilt because it could not be put back."""
        self._emit(EventKind.VARIABLE_REBUILT, name, 0, detail=reason.strip().rpartition("\n")[2])

    def dirty(self, name: str, job: str, function: str) -> None:
        """A reset left something behind (--check-resets)."""
        self._emit(EventKind.VARIABLE_DIRTY, name, 0, job_id=job, func=function)

    # -- the executor's own state -------------------------------------------------------------------------

    def publish(self, state: str = "") -> None:
        """Write the executor's hash."""
        self.state = state or self.state
        self._written = (self.state, self.generation)
        self._written_at = time.monotonic()
        states = self.states()
        self._counted = _counts(states)
        variables = [self._record(value) for value in states]
        memory = MemoryState(round(self._memory.baseline_mib, 1), round(self._memory.grown_mib, 1))
        self._quietly(lambda: self._store.write(self._info, self.state, self.generation, variables, memory))

    def settle_on(self, state: str) -> None:
        """Write the hash where the state changed, or counters may have for some seconds."""
        due = time.monotonic() - self._written_at > _REFRESH_S
        stale = due and _counts(self.states()) != self._counted
        if (state, self.generation) != self._written or stale:
            self.publish(state)

    def gone(self) -> None:
        """The executor ends in good order."""
        self._quietly(lambda: self._store.remove(self._info.name))

    def _record(self, value: ValueState) -> VariableState:
        return VariableState(
            name=value.name,
            version=value.version,
            digest=value.digest,
            epoch=value.epoch,
            state=str(value.state),
            error=value.error,
            build_seconds=round(value.build_seconds, 6),
            builds=value.builds,
            resets=value.resets,
            uses=value.uses,
            dirty=value.dirty,
            rss_mib=self._rss.get(value.name, 0.0),
        )

    def _emit(self, kind: EventKind, name: str, version: int, **fields: Any) -> None:
        happened = events.event(kind, worker=self._info.name, env=name, env_version=version, **fields)
        self._quietly(lambda: events.emit(self._connection, self._keys, happened))

    def _quietly(self, send: Callable[[], object]) -> None:
        try:
            send()
        except REDIS_ERRORS as error:
            log.debug("could not tell Redis about %s: %s", self._info.name, error)


class RuntimeLimits:
    """The runtime's limits on this executor's clock."""

    def __init__(self, deadlines: Deadlines, reporter: Reporter, threads: Threads, memory: Memory) -> None:
        self._deadlines = deadlines
        self._reporter = reporter
        self._threads = threads
        self._memory = memory

    def limit(self, seconds: float | None, what: str) -> AbstractContextManager[Any]:
        """A build if one was just announced, else a reset, check or teardown."""
        building, self._reporter.now_building = self._reporter.now_building, None
        if building is None:
            return self._deadlines.limit(seconds, Work(Phase.RESETTING, what), lambda: _too_long(what, seconds))
        return self._build_limit(seconds, Work(Phase.BUILDING, *building), _too_long(what, seconds))

    @contextmanager
    def _build_limit(self, seconds: float | None, work: Work, error: TimeLimit) -> Generator[None]:
        memory = self._memory.built() if self._reporter.first_build else nullcontext()
        with memory, self._threads.noting(), self._deadlines.limit(seconds, work, error):
            yield


def _too_long(what: str, seconds: float | None) -> TimeLimit:
    return TimeLimit(f"{what} ran longer than {seconds or 0:g} s")


def _counts(states: list[ValueState]) -> list[tuple[int, int]]:
    return [(value.uses, value.resets) for value in states]


def _code(recipe: Recipe) -> tuple[str, int, str]:
    return recipe.name, recipe.version, recipe.digest
