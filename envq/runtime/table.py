"""All that one runtime knows: slots, values, what is used, and whose code is running just now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from types import TracebackType

from envq.runtime.slot import Slot
from envq.runtime.value import Value


class Phase(Enum):
    """Which of the user's callables runs."""

    BUILD = "build"
    RESET = "reset"
    CHECK = "check"
    TEARDOWN = "teardown"
    COMPARE = "compare"  # pickling, of the value's parts


class Table:
    """Shared by the parts of the runtime; has no behaviour beyond keeping its own parts in step."""

    def __init__(self, cache: dict[str, object]) -> None:
        self.slots: dict[str, Slot] = {}
        self.retired: list[Value] = []  # replaced, but something is still built on them
        self.used: dict[Value, bool] = {}  # not reset yet; True: the job's own code could reach it
        self.frames: list[Frame] = []
        self.serving = False  # a read from outside is being answered, so that interrupts are its caller's
        self.job = ""  # the last one that began
        self.function = ""  # of that job; "" where nobody said
        self.open = False  # it has not ended
        self.cache = cache
        self.cached: list[str] = []  # names put there
        self.cache_reads = True

    def living(self) -> Iterator[Value]:
        """Every value that has not been let go."""
        yield from (slot.value for slot in self.slots.values() if slot.value is not None)
        yield from self.retired

    def is_current(self, value: Value) -> bool:
        """Whether it is what its name stands for."""
        slot = self.slots.get(value.name)
        return slot is not None and slot.value is value

    def pending(self, slot: Slot) -> bool:
        """Whether it is to be built between jobs: unbuilt, or of a version or on grounds that have passed."""
        if slot.failure is not None:
            return False
        if slot.value is None:
            return slot.tried or slot.recipe.build == "eager"
        if slot.value.recipe.identity != slot.recipe.identity:
            return True
        return not all(map(self.is_current, slot.value.grounds.values()))

    def wake(self, name: str) -> None:
        """Something may be readable now: what failed for the lack of it starts over, and what failed for that."""
        for slot in self.slots.values():
            if slot.waits_for({name}):
                slot.start_over()
                self.wake(slot.name)

    def hand_out(self, value: Value) -> None:
        """The job's own code gets it, and with it can reach everything it stands on."""
        for each in (*value.below, value):
            if each not in self.used:
                self.slots[each.name].uses += 1
            self.used[each] = True

    def handed_out(self, values: Iterable[Value]) -> bool:
        """Whether the job's own code may have changed one of them, or something below."""
        return any(self.used.get(each) for value in values for each in (value, *value.below))

    def hide_cache(self) -> None:
        """Make the next read of every name come through the runtime."""
        for name in self.cached:
            self.cache.pop(name, None)
        self.cached.clear()

    def detach(self, value: Value) -> None:
        """Nothing hands it out any more."""
        value.gone = True
        self.used.pop(value, None)
        slot = self.slots.get(value.name)
        if slot is not None and slot.value is value:
            slot.value = None
        if value in self.retired:
            self.retired.remove(value)


class Frame:
    """While it is entered, the user's code of one variable runs, and reads are that variable's."""

    __slots__ = ("missing", "name", "phase", "provisional", "reads", "table", "value")

    def __init__(self, table: Table, name: str, phase: Phase, value: Value | None = None) -> None:
        self.table = table
        self.name = name
        self.phase = phase
        self.value = value  # None in a build
        self.reads: dict[str, Value] = {}
        self.missing: set[str] = set()
        self.provisional = False

    def __enter__(self) -> Frame:
        # Cached names would be read past the runtime: a need would go unnoticed, or a value handed out dirty.
        if self.table.cached:
            self.table.hide_cache()
        self.table.frames.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.table.frames.pop()
