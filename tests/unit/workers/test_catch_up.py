"""What an executor holds while the store has forgotten it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from envq.runtime import Recipe
from envq.store.declarations import DeclarationStore, Snapshot
from envq.store.records import Declaration
from envq.workers.execution import catch_up as module
from envq.workers.execution.catch_up import CatchUp


@dataclass
class Runtime:
    adopted: set[str] = field(default_factory=set[str])

    def would_build(self, recipes: dict[str, Recipe]) -> bool:
        return False

    def adopt(self, recipes: dict[str, Recipe]) -> None:
        self.adopted = set(recipes)


class Store:
    def __init__(self) -> None:
        self.now = Snapshot("", {})

    def holds(self, generation: str, *names: str) -> None:
        declared = {name: Declaration(name, 1, f"digest of {name}", life="11") for name in names}
        self.now = Snapshot(generation, declared)

    def snapshot(self, *, checked: bool) -> Snapshot:
        return self.now

    def code(self, declaration: Declaration) -> Any:
        raise AssertionError(declaration)


@dataclass
class Executor:
    store: Store = field(default_factory=Store)
    runtime: Runtime = field(default_factory=Runtime)

    def __post_init__(self) -> None:
        self.catch_up = CatchUp(cast(DeclarationStore, self.store), lambda: cast(Any, self.runtime), ["default"])

    def turn(self) -> set[str]:
        """As the executor does after a claim; what it holds then."""
        if not self.catch_up.is_current(self.store.now.generation):
            snapshot, recipes, _ = self.catch_up.pending()
            self.catch_up.adopt(snapshot, recipes)
        return self.runtime.adopted


@pytest.fixture
def executor() -> Executor:
    new = Executor()
    new.store.holds("2:aa:11", "one", "two")
    assert new.turn() == {"one", "two"}
    return new


@pytest.fixture
def time_is_up(monkeypatch: pytest.MonkeyPatch) -> Any:
    def time_is_up() -> None:
        monkeypatch.setattr(module.time, "monotonic", lambda: float("inf"))

    return time_is_up


def test_what_an_emptied_store_forgot_stays_for_a_while(executor: Executor, time_is_up: Any) -> None:
    executor.store.holds("")
    assert executor.turn() == {"one", "two"}
    assert set(executor.catch_up.declared) == {"one", "two"}
    assert executor.catch_up.is_current("")
    time_is_up()
    assert executor.turn() == set()
    assert executor.catch_up.is_current("")


def test_what_is_declared_again_one_by_one_is_not_let_go_in_between(executor: Executor, time_is_up: Any) -> None:
    executor.store.holds("1:bb:22", "one")
    assert executor.turn() == {"one", "two"}
    executor.store.holds("2:cc:22", "one", "two")
    assert executor.turn() == {"one", "two"}
    time_is_up()
    assert executor.turn() == {"one", "two"}


def test_what_is_removed_goes_at_once(executor: Executor) -> None:
    executor.store.holds("3:bb:11", "one")
    assert executor.turn() == {"one"}
