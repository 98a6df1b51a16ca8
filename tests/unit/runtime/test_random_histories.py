"""Whatever comes in whatever order: no job sees a dirty value, and every value is torn down once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from envq.errors import EnvironmentVariableError, JobTimedOut
from envq.variables import REBUILD

NAMES = "abcdef"
MISHAPS = [ValueError("boom"), JobTimedOut("late"), SystemExit(1)]


class Thing:
    def __init__(self, name: str, version: int, grounds: list[Thing]) -> None:
        self.name = name
        self.version = version
        self.grounds = grounds
        self.copied = [mark for ground in grounds for mark in (*ground.marks, *ground.copied)]
        self.marks: list[str] = []

    @property
    def all_marks(self) -> list[str]:
        below = [mark for ground in self.grounds for mark in ground.all_marks]
        return [*self.marks, *self.copied, *below]


class History:
    """Declares, removes, fails and interrupts by chance, and checks what jobs see."""

    def __init__(self, world: Any, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.version = 0
        self.made: list[Thing] = []
        self.number = 0
        self.torn_down: Counter[int] = Counter()

    def mishap(self, probability: float) -> None:
        if self.chance.random() < probability:
            raise self.chance.choice(MISHAPS)

    def initializer(self, name: str, version: int) -> Callable[[], Thing]:
        below = NAMES[: NAMES.index(name)]
        wants = self.chance.sample(below, k=min(len(below), self.chance.randrange(3)))

        def make() -> Thing:
            self.mishap(0.1)
            thing = Thing(name, version, [getattr(self.world.env, each) for each in wants])
            self.made.append(thing)
            return thing

        return make

    def reset(self, thing: Thing) -> Any:
        self.mishap(0.1)
        if self.chance.random() < 0.2:
            return self.chance.choice([None, REBUILD])
        assert not [mark for ground in thing.grounds for mark in ground.all_marks], "reset before its ground"
        thing.marks.clear()
        return thing

    def teardown(self, thing: Thing) -> None:
        self.torn_down[id(thing)] += 1
        assert not [ground for ground in thing.grounds if self.torn_down[id(ground)]], "torn down after its ground"
        self.mishap(0.1)

    def check(self, thing: Thing) -> bool:
        self.mishap(0.1)
        return self.chance.random() < 0.8

    def declare(self) -> None:
        name = self.chance.choice(NAMES)
        self.version += 1
        self.world.declare(
            name,
            self.initializer(name, self.version),
            self.chance.choice([None, self.reset, self.reset]),
            check=self.chance.choice([None, None, self.check]),
            teardown=self.teardown,
            version=self.version,
            build=self.chance.choice(["eager", "lazy"]),
            replace=self.chance.choice(["keep", "free"]),
        )

    def remove(self) -> None:
        if self.world.recipes:
            self.world.remove(self.chance.choice(sorted(self.world.recipes)))

    def retry(self) -> None:
        self.world.pass_time(self.chance.choice([0.5, 1.0, 10.0]))

    def job(self) -> None:
        seen: dict[str, Thing] = {}
        try:
            with self.world.job() as env:
                for name in self.chance.choices(NAMES, k=4):
                    self.read(env, name, seen)
                self.mishap(0.2)
        except (ValueError, JobTimedOut, SystemExit):
            pass
        assert self.world.runtime.used == ()
        assert not [key for key in self.world.env.__dict__ if key in NAMES]

    def read(self, env: Any, name: str, seen: dict[str, Thing]) -> None:
        try:
            thing = getattr(env, name)
        except EnvironmentVariableError:
            assert name not in seen
            return
        assert seen.setdefault(name, thing) is thing, "another object in the same job"
        assert thing.name == name
        assert not self.torn_down[id(thing)], "handed out after its teardown"
        assert set(thing.all_marks) <= {self.mark}, "dirty"
        thing.marks.append(self.mark)

    @property
    def mark(self) -> str:
        return f"job {self.number}"

    def run(self, steps: int) -> None:
        moves = [self.declare, self.remove, self.retry, *[self.job] * 4]
        for self.number in range(steps):
            self.chance.choice(moves)()
        self.world.runtime.close()
        assert {id(thing) for thing in self.made} == set(self.torn_down)
        assert set(self.torn_down.values()) <= {1}


@pytest.mark.parametrize("seed", range(12))
def test_no_history_hands_out_a_dirty_value_or_tears_one_down_twice(
    world: Any, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    History(world, seed).run(steps=80)
    assert "after its ground" not in caplog.text
    assert "before its ground" not in caplog.text
