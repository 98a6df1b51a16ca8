"""One value in hand: the user's object, the code that made it, and what it was built on."""

from __future__ import annotations

from collections.abc import Iterable

from envq.runtime.calling import Rest
from envq.runtime.recipe import Callables, Recipe


class Value:
    """Compared by identity. The user's object is never compared, tested for truth or hashed."""

    __slots__ = (
        "below",
        "callables",
        "distrust",
        "fresh",
        "gone",
        "grounds",
        "last",
        "made",
        "name",
        "plain",
        "provisional",
        "recipe",
        "reset_title",
        "rest",
        "serial",
    )

    def __init__(self, recipe: Recipe, callables: Callables, made: object, rest: Rest | None) -> None:
        self.name = recipe.name
        self.recipe = recipe
        self.callables = callables
        self.made = made
        self.reset_title = f"the reinitializer of {recipe.name!r}"
        self.rest = rest
        self.grounds: dict[str, Value] = {}  # what its build read
        self.serial = 0  # order of building: grounds have lower numbers
        self.below: tuple[Value, ...] = ()  # its grounds, theirs, and so on, in order of building
        self.plain = callables.check is None  # no check here or below: a read only marks and hands out
        self.distrust = ""  # why it has to be rebuilt in place of being reset
        self.provisional = False  # built in a job on what that job may have changed: rebuilt after it
        self.gone = False
        self.fresh: str | None = None  # fingerprint after the build
        self.last: str | None = None  # fingerprint after the last reset

    def stand_on(self, grounds: dict[str, Value]) -> None:
        """Note what its build read."""
        self.grounds = grounds
        direct = grounds.values()
        self.below = tuple(in_order({*direct, *(each for ground in direct for each in ground.below)}))
        self.plain = self.callables.check is None and all(ground.plain for ground in direct)


def path_to(value: Value, name: str) -> list[str]:
    """The names from the value down to a ground of that name; empty if it does not stand on one."""
    if value.name == name:
        return [name]
    for ground in value.grounds.values():
        if found := path_to(ground, name):
            return [value.name, *found]
    return []


def with_dependents(roots: Iterable[Value], living: Iterable[Value]) -> list[Value]:
    """The roots and all that was built on them, in order of building."""
    found = set(roots)
    for value in in_order(living):  # grounds come first, so that one pass is enough
        if any(ground in found for ground in value.grounds.values()):
            found.add(value)
    return in_order(found)


def in_order(values: Iterable[Value]) -> list[Value]:
    """Sorted by the order of building."""
    return sorted(values, key=_serial)


def _serial(value: Value) -> int:
    return value.serial
