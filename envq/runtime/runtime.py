"""The life cycle of all values of one process: the way in for whoever runs jobs.

                 eager, or a read                             a read in a job
    declared ───────────────────▶ building ────────▶ ready ──────────────────▶ used
        ▲                          │    ▲              ▲                         │
        │ interrupted in a job     │    │ retry due,   │ reinitializer           │ end of the job,
        └──────────────────────────┤    │ redeclared   │ returned it             │ entry to the next
                                   ▼    │              │                         ▼
                                  failed┘              ├──────────────────── resetting
                                   ▲                   │                         │
                                   │ initializer       │ initializer             │ raised, too long, REBUILD,
                                   │ raised            │ returned                │ no `return`, distrusted,
                                   └───────────── rebuilding ◀───────────────────┘ or no reinitializer

Rebuilding is teardown, then initializer; a `check` that says no leads there too, before the read returns. A
new version under ``replace="keep"`` is built beside the old value, which goes on serving if that fails
(`update failed`). A value that stands on another one, because its initializer read it, is torn down before it
and built after it, and is rebuilt when the other becomes another object.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from envq.runtime.building import Building
from envq.runtime.calling import Caller
from envq.runtime.comparing import Comparing
from envq.runtime.letting_go import LettingGo
from envq.runtime.ports import Limits, Listener, Ports
from envq.runtime.reading import Reading
from envq.runtime.recipe import Recipe
from envq.runtime.replacing import Replacing
from envq.runtime.resetting import Resetting
from envq.runtime.states import ValueState
from envq.runtime.table import Table


class Runtime:
    """
    Holds the values of one process; used by one thread at a time, because values belong to their thread.

    Args:
        run_coroutine: runs a coroutine of the user's code to its end, on a loop that lasts.
        cache: a namespace in which names that a job has read are found without asking here.
        fingerprint: tells content, or raises; given, every reset is compared with the fresh build (``Listener.dirty``).
        known_names: names that are declared anywhere, for the message about one that is not known here.
    """

    def __init__(  # noqa: PLR0913 - the seams to the outside, all by keyword
        self,
        *,
        run_coroutine: Callable[[Coroutine[Any, Any, Any]], Any],
        listener: Listener,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
        cache: dict[str, object] | None = None,
        fingerprint: Callable[[object], str] | None = None,
        known_names: Callable[[], Iterable[str]] | None = None,
    ) -> None:
        ports = Ports(listener, limits, clock, run_coroutine, fingerprint, known_names)
        caller = Caller(run_coroutine)
        self._clock = clock
        self._table = table = Table({} if cache is None else cache)
        self._letting_go = LettingGo(table, ports, caller)
        comparing = Comparing(table, ports)
        building = Building(table, ports, caller, self._letting_go, comparing)
        self._replacing = Replacing(table, ports, building, self._letting_go)
        self._resetting = Resetting(table, ports, caller, self._replacing, comparing)
        self._reading = Reading(table, ports, caller, self._replacing, self._resetting)

    def would_build(self, recipes: Mapping[str, Recipe]) -> bool:
        """Whether ``adopt`` would run an initializer now."""
        return self._replacing.would_build(recipes)

    def adopt(self, recipes: Mapping[str, Recipe]) -> None:
        """Change over to exactly these variables; between jobs only. A failing build does not raise."""
        self._table.hide_cache()
        self._replacing.adopt(recipes)

    def begin_job(self, job_id: str, function: str = "") -> None:
        """Entry check: what an earlier job used and is not reset is reset now. Opens the job's reads."""
        table = self._table
        if table.frames or table.serving:  # an interrupt that came between two statements left them
            table.frames.clear()
            table.serving = False
        if table.used:
            self._resetting.clean_used()
        table.job, table.function = job_id, function
        table.open = True

    def read(self, name: str) -> object:
        """
        The object of that name, the same for the whole job; marks it used.

        Raises NotDeclared, EnvironmentVariableFailed or DependencyCycle. Outside a job it marks as well, so
        that the next job finds the value reset.
        """
        table = self._table
        slot = table.slots.get(name)
        value = slot.value if slot is not None else None
        if value is None or not value.plain or table.frames:
            value = self._reading.read(name)
        elif not table.used.get(value):
            table.hand_out(value)
        if table.open and not table.frames and table.cache_reads:
            table.cached.append(name)
            table.cache[name] = value.made
        return value.made

    def end_job(self) -> None:
        """Reset what the job used, however it ended. The user's code cannot make this raise."""
        self._table.open = False
        if self._table.used:
            self._resetting.clean_used()

    def distrust_used(self, reason: str) -> None:
        """Before ``end_job``: rebuild what was used, for something may still hold on to it."""
        for value in self._table.used:
            value.distrust = reason

    @property
    def cache_reads(self) -> bool:
        """Whether what a job has read is put into the cache; else every read comes through ``read``."""
        return self._table.cache_reads

    @cache_reads.setter
    def cache_reads(self, value: bool) -> None:
        self._table.cache_reads = value

    @property
    def is_used(self) -> bool:
        """Something waits for its reset."""
        return bool(self._table.used)

    @property
    def expected_reset_s(self) -> float:
        """How long ``end_job`` will take, going by the last resets; infinity where nobody can know."""
        slots = self._table.slots
        return sum(
            math.inf if value.distrust or value.name not in slots else slots[value.name].reset_seconds
            for value in self._table.used
        )

    @property
    def used(self) -> tuple[str, ...]:
        """Names of what is used and not reset yet, in order of first use."""
        return tuple(dict.fromkeys(value.name for value in self._table.used))

    @property
    def next_retry(self) -> float | None:
        """When ``retry_due`` has something to build, on the clock given; None: never."""
        if any(map(self._table.pending, self._table.slots.values())):
            return self._clock()
        due = (slot.failure.next_retry for slot in self._table.slots.values() if slot.failure is not None)
        return min((moment for moment in due if moment is not None), default=None)

    def retry_due(self) -> None:
        """Try the failed builds whose time has come, and what waited for them; between jobs only."""
        self._table.hide_cache()
        self._replacing.retry(self._clock())

    def states(self) -> list[ValueState]:
        """All variables, in order of declaration."""
        return [slot.snapshot() for slot in self._table.slots.values()]

    def close(self) -> None:
        """Let go of everything, last built first. The user's code cannot make this raise."""
        self._table.hide_cache()
        self._letting_go.let_go(list(self._table.living()))
        self._table.slots.clear()
