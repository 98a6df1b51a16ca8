"""Answers reads: those of a job, and those of the user's code while it builds, resets or checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envq.errors import DependencyCycle, EnvironmentVariableError, NotDeclared, did_you_mean
from envq.runtime.calling import INTERRUPTS, Caller, describe
from envq.runtime.ports import Ports, logger
from envq.runtime.replacing import Replacing
from envq.runtime.resetting import Resetting
from envq.runtime.slot import Slot
from envq.runtime.table import Frame, Phase, Table
from envq.runtime.value import Value, path_to
from envq.variables import REBUILD


class Reading:
    """Everything a read does beyond handing out a value that is simply there."""

    def __init__(self, table: Table, ports: Ports, caller: Caller, replacing: Replacing, resetting: Resetting) -> None:
        self._table = table
        self._ports = ports
        self._caller = caller
        self._replacing = replacing
        self._resetting = resetting

    def read(self, name: str) -> Value:
        """The value of that name for whoever reads; raises NotDeclared or why there is none."""
        return self._read_inside(name) if self._table.frames else self._serve(name)

    def _serve(self, name: str) -> Value:
        self._table.serving = True
        try:
            value = self._use(self._slot(name))
            self._table.hand_out(value)
            return value
        finally:
            self._table.serving = False

    def _use(self, slot: Slot) -> Value:
        """Mark it used with all it stands on; what is so for the first time in this job is checked."""
        value = self._replacing.current(slot)
        if value in self._table.used:
            return value
        for ground in value.below:
            self._first_use(ground)
        self._first_use(self._replacing.current(slot))  # a ground that was rebuilt took the value along
        value = self._replacing.current(slot)
        self._table.used.setdefault(value, False)
        return value

    def _first_use(self, value: Value) -> None:
        if value in self._table.used or value.gone:
            return
        # Before any of the user's code runs: whatever happens from here on, it will be reset.
        self._table.used[value] = False
        self._table.slots[value.name].uses += 1
        check = value.callables.check
        if check is None:
            return
        value.distrust = "its check was interrupted"
        reason = self._check(value, check)
        value.distrust = reason
        if reason:
            self._rebuild_in_use(value, reason)

    def _check(self, value: Value, check: Callable[[Any], Any]) -> str:
        """Run the check; returns what speaks against the value."""
        limit = self._ports.limits.limit(value.recipe.reset_timeout, f"the check of {value.name!r}")
        try:
            with Frame(self._table, value.name, Phase.CHECK, value), limit:
                answer = self._caller.call(check, value.made)
                return "" if answer is not REBUILD and answer else "its check returned false"
        except BaseException as error:  # the user's code: what ends it without an answer is no
            if isinstance(error, INTERRUPTS):
                raise
            return f"its check raised {describe(error)}"

    def _rebuild_in_use(self, value: Value, reason: str) -> None:
        logger.warning("environment variable %r is rebuilt before a read: %s", value.name, reason)
        self._replacing.rebuild([value])
        slot = self._table.slots[value.name]
        if slot.value is not None:
            self._table.used.setdefault(slot.value, False)

    def _read_inside(self, name: str) -> Value:
        frame = self._table.frames[-1]
        try:
            value = self._own(frame, name) or self._other(frame, name)
        except EnvironmentVariableError:
            frame.missing.add(name)
            raise
        frame.reads[name] = value
        return value

    def _own(self, frame: Frame, name: str) -> Value | None:
        """A value's own code sees the value itself, and what it was built on even where that was replaced."""
        if frame.value is None:
            return None
        return frame.value if frame.name == name else frame.value.grounds.get(name)

    def _other(self, frame: Frame, name: str) -> Value:
        self._refuse_circle([each.name for each in self._table.frames], name)
        slot = self._slot(name)
        if frame.phase in (Phase.TEARDOWN, Phase.COMPARE):  # takes what is there: nobody would let go of a new one
            if slot.value is None:
                raise slot.error()
            return slot.value
        value = self._in_job(frame, slot) if self._table.serving else self._between_jobs(slot)
        for each in self._table.frames:
            if each.phase is Phase.BUILD and (path := path_to(value, each.name)):
                self._refuse_circle([each.name, *path[:-1]], each.name)
        return value

    def _in_job(self, frame: Frame, slot: Slot) -> Value:
        value = self._use(slot)
        if frame.phase is Phase.BUILD and self._table.handed_out([value]):
            frame.provisional = True
        return value

    def _between_jobs(self, slot: Slot) -> Value:
        self._resetting.clean(self._replacing.current(slot))
        return self._replacing.current(slot)

    def _refuse_circle(self, names: list[str], name: str) -> None:
        if name in names:
            circle = [*names[names.index(name) :], name]
            raise DependencyCycle(f"initializers read each other in a circle: {' → '.join(circle)}", name)

    def _slot(self, name: str) -> Slot:
        slot = self._table.slots.get(name)
        if slot is None:
            raise self._not_declared(name)
        return slot

    def _not_declared(self, name: str) -> NotDeclared:
        known = set(self._table.slots)
        if self._ports.known_names is not None:
            known.update(self._ports.known_names())
        names = ", ".join(sorted(known)) or "none"
        if name in known:
            return NotDeclared(
                f"environment variable {name!r} is declared, but not for this worker: it listens on none "
                f"of the queues=[...] given with it (known: {names})",
                name,
            )
        return NotDeclared(
            f"environment variable {name!r} is not declared{did_you_mean(name, known)} (known: {names}): correct the "
            f"name, or declare it with envq.env.{name} = envq.EnvironmentVariable(initializer)",
            name,
        )
