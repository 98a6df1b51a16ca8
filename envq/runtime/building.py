"""Builds one value: a try, what it read on the way, and what its failure means."""

from __future__ import annotations

from itertools import count

from envq.runtime.calling import INTERRUPTS, Caller
from envq.runtime.comparing import Comparing
from envq.runtime.letting_go import LettingGo
from envq.runtime.ports import Ports, Quarantined, logger, tell
from envq.runtime.recipe import Callables, Recipe
from envq.runtime.slot import Slot
from envq.runtime.table import Frame, Phase, Table
from envq.runtime.value import Value


class Building:
    """One try at a time; a build whose initializer reads others builds those inside."""

    def __init__(self, table: Table, ports: Ports, caller: Caller, letting_go: LettingGo, comparing: Comparing) -> None:
        self._table = table
        self._ports = ports
        self._caller = caller
        self._letting_go = letting_go
        self._comparing = comparing
        self._serials = count(1)

    def build(self, slot: Slot, recipe: Recipe, callables: Callables | None) -> None:
        """
        Put a new value into the slot, or note there why not; with ``callables`` the code is loaded already.

        Raises only what is meant for the reader: JobInterrupt or KeyboardInterrupt while a read from outside
        is answered. The slot is then unbuilt, without a failure.
        """
        frame = Frame(self._table, slot.name, Phase.BUILD)
        slot.building = True
        try:
            self._try(slot, recipe, callables, frame)
        except Quarantined as refusal:
            slot.quarantine(recipe, str(refusal))
            logger.error("environment variable %r (version %d) is quarantined: %s", slot.name, recipe.version, refusal)
        except BaseException as error:  # the user's code: any end but a value is a failed build
            if self._table.serving and isinstance(error, INTERRUPTS):
                raise
            self._failed(slot, recipe, error, frame)
        finally:
            slot.building = False
            tell(self._ports.listener.changed, slot.snapshot())

    def _try(self, slot: Slot, recipe: Recipe, callables: Callables | None, frame: Frame) -> None:
        refused = False
        try:
            self._ports.listener.building(recipe)
            tell(self._ports.listener.changed, slot.snapshot())
            started = self._ports.clock()
            value = self._make(recipe, callables, frame)
            self._hold(slot, value, self._ports.clock() - started)
        except Quarantined:
            refused = True
            raise
        finally:
            if not refused:
                tell(self._ports.listener.build_ended, recipe)

    def _make(self, recipe: Recipe, callables: Callables | None, frame: Frame) -> Value:
        value = None
        limit = self._ports.limits.limit(recipe.init_timeout, f"the initializer of {recipe.name!r}")
        try:
            with frame, limit:
                callables = callables or Callables(*recipe.load())
                made, rest = self._caller.begin(callables.initializer)
                value = Value(recipe, callables, made, rest)
        except BaseException:
            if value is not None:  # the limit ran out on the way out
                self._letting_go.tear_down(value)
            raise
        value.serial = next(self._serials)
        value.stand_on(frame.reads)
        value.provisional = frame.provisional
        try:
            self._comparing.note_fresh(value)
        except BaseException:  # an interrupt of the job that reads it
            self._letting_go.tear_down(value)
            raise
        return value

    def _hold(self, slot: Slot, value: Value, seconds: float) -> None:
        replaced = slot.value
        slot.hold(value, seconds)
        if replaced is not None:
            self._table.retired.append(replaced)
        self._table.wake(slot.name)

    def _failed(self, slot: Slot, recipe: Recipe, error: BaseException, frame: Frame) -> None:
        slot.fail(recipe, error, frozenset(frame.missing), self._ports.clock())
        assert slot.failure is not None
        tell(self._ports.listener.build_failed, slot.explain(slot.failure))
