"""Changes one value for another: new versions, rebuilds, and what was built on what passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from envq.runtime.building import Building
from envq.runtime.letting_go import LettingGo
from envq.runtime.ports import Ports, tell
from envq.runtime.recipe import Recipe
from envq.runtime.slot import Slot
from envq.runtime.table import Table
from envq.runtime.value import Value, path_to


class Replacing:
    """Keeps the slots at what is wanted, as far as that can be built."""

    def __init__(self, table: Table, ports: Ports, building: Building, letting_go: LettingGo) -> None:
        self._table = table
        self._ports = ports
        self._building = building
        self._letting_go = letting_go

    def current(self, slot: Slot) -> Value:
        """The slot's value, built now if it has never been tried; raises why there is none."""
        changes_over = not self._table.serving and self._table.pending(slot)  # never inside a job
        if changes_over or (slot.value is None and slot.failure is None):
            self._bring_up(slot)
        if slot.value is None:
            raise slot.error()
        return slot.value

    def rebuild(self, values: Iterable[Value]) -> None:
        """Let go of these and all that was built on them, then build each again from the code it had."""
        doomed = [value for value in self._letting_go.let_go(values) if value.name in self._table.slots]
        for value in doomed:
            slot = self._table.slots[value.name]
            if slot.value is None:
                self._restore(slot, value)
        self._letting_go.sweep()

    def rebuild_what_stands_on(self, value: Value) -> None:
        """Its object has become another one."""
        self.rebuild([each for each in self._table.living() if value in each.grounds.values()])

    def adopt(self, recipes: Mapping[str, Recipe]) -> None:
        """Change over to exactly these names and versions."""
        gone = self._table.slots.keys() - recipes.keys()
        homeless = self._letting_go.let_go([each for each in self._table.living() if each.name in gone])
        for name in gone:
            del self._table.slots[name]
        for recipe in recipes.values():
            self._want(recipe)
        for value in homeless:
            self._restore_failed_update(value)
        self.settle()

    def would_build(self, recipes: Mapping[str, Recipe]) -> bool:
        """Whether ``adopt`` would run an initializer."""
        slots = self._table.slots
        gone = slots.keys() - recipes.keys()
        changed = {name for name, recipe in recipes.items() if name not in slots or slots[name].differs(recipe)}
        kept = [slots[name] for name in recipes.keys() - changed]
        return (
            any(recipes[name].build == "eager" or (name in slots and slots[name].tried) for name in changed)
            or any(self._table.pending(slot) or slot.waits_for(changed) for slot in kept)
            or any(slot.value is not None and path_to(slot.value, name) for slot in kept for name in gone)
        )

    def retry(self, now: float) -> None:
        """Build what is due or pending."""
        for slot in self._table.slots.values():
            if slot.is_due(now):
                slot.failure = None
        self.settle()

    def settle(self) -> None:
        """Build what is pending; what a build needs comes up inside it. Between jobs only."""
        # The bound only matters for initializers that read others by chance: they could take turns for ever.
        for _ in range((len(self._table.slots) + 1) ** 2):
            slot = next(filter(self._table.pending, self._table.slots.values()), None)
            if slot is None:
                break
            self._bring_up(slot)
            self._letting_go.sweep()
        self._letting_go.sweep()

    def _want(self, recipe: Recipe) -> None:
        slot = self._table.slots.get(recipe.name)
        if slot is None:
            slot = self._table.slots[recipe.name] = Slot(recipe)
            self._table.wake(recipe.name)
            tell(self._ports.listener.changed, slot.snapshot())
        elif slot.want(recipe):
            self._table.wake(recipe.name)

    def _bring_up(self, slot: Slot) -> None:
        old = slot.value
        if old is None:
            self._building.build(slot, slot.recipe, None)
        elif slot.recipe.replace == "keep":
            self._building.build(slot, slot.recipe, slot.loaded(old))
        else:
            homeless = [each for each in self._letting_go.let_go([old]) if each is not old]
            self._building.build(slot, slot.recipe, slot.loaded(old))
            for value in homeless:
                self._restore_failed_update(value)

    def _restore(self, slot: Slot, value: Value) -> None:
        """Build again what was there: an older version if its update failed."""
        recipe = value.recipe if slot.failure is not None else slot.recipe
        same = recipe.identity == value.recipe.identity
        self._building.build(slot, recipe, value.callables if same else None)

    def _restore_failed_update(self, value: Value) -> None:
        """The old version goes on serving, also when what it was built on has changed."""
        slot = self._table.slots.get(value.name)
        if slot is not None and slot.value is None and slot.failure is not None:
            self._restore(slot, value)
