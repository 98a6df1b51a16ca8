"""Pure: how far executors are with one declared variable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from envq.store.declarations import Snapshot
from envq.store.executor_store import ExecutorView
from envq.store.records import Declaration, VariableState

READY = "ready"
OUTDATED = "outdated"  # an older version serves, the new one is not tried yet
PENDING = "pending"  # declared, and this executor has not come to it
LAZY = "not read yet"  # build="lazy", and no job here has read it
BROKEN = ("failed", "update failed", "quarantined")


@dataclass(frozen=True)
class Holder:
    """One executor that builds the variable, and what it says of it."""

    executor: str
    state: str
    held: VariableState | None

    @property
    def error(self) -> str:
        """The traceback of its last try; "" where there is none."""
        return self.held.error if self.held else ""


@dataclass(frozen=True)
class Readiness:
    """All executors that build one variable."""

    holders: list[Holder]

    @property
    def ready(self) -> int:
        """How many hold the current version."""
        return sum(holder.state == READY for holder in self.holders)

    @property
    def settled(self) -> int:
        """How many hold it, or have nothing to build before a job reads it."""
        return sum(holder.state in (READY, LAZY) for holder in self.holders)

    @property
    def broken(self) -> list[Holder]:
        """Those that tried and failed."""
        return [holder for holder in self.holders if holder.state in BROKEN]

    @property
    def summary(self) -> str:
        """``ready 1/3, building 1, failed 1``."""
        if not self.holders:
            return "no executor builds it"
        others = Counter(holder.state for holder in self.holders if holder.state != READY)
        parts = [f"ready {self.ready}/{len(self.holders)}"]
        return ", ".join(parts + [f"{state} {count}" for state, count in sorted(others.items())])


def readiness(name: str, snapshot: Snapshot, executors: Iterable[ExecutorView]) -> Readiness:
    """What the executors that listen on one of its queues say of a declared variable."""
    declaration = snapshot.declarations[name]
    return Readiness(
        [
            _holder(declaration, view, seen=view.generation == snapshot.generation)
            for view in executors
            if builds(declaration, view)
        ]
    )


def builds(declaration: Declaration, view: ExecutorView) -> bool:
    """Whether the executor's queues make it build the variable."""
    return declaration.queues is None or not set(declaration.queues).isdisjoint(view.info.queues)


def _holder(declaration: Declaration, view: ExecutorView, *, seen: bool) -> Holder:
    held = view.variables.get(declaration.name)
    return Holder(view.info.name, _state(declaration, held, seen=seen), held)


def _state(declaration: Declaration, held: VariableState | None, *, seen: bool) -> str:
    if held is None or held.state == "declared":
        return LAZY if declaration.build == "lazy" and seen else PENDING
    if (held.version, held.epoch) == (declaration.version, declaration.epoch) or held.state == "building":
        return held.state
    if held.state == "update failed" and seen:
        return held.state  # its version is that of the value that goes on serving
    return PENDING if held.state in ("failed", "quarantined") else OUTDATED
