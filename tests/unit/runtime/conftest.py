"""A runtime with everything around it faked: clock, limits, listener, and the object that jobs read from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from envq.runtime import Callables, Listener, Quarantined, Recipe, Runtime, TimeLimit, ValueState


class Clock:
    """Time that passes when told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Recorder(Listener):
    """Notes everything it is told; refuses the names in ``quarantined``."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.states: list[ValueState] = []
        self.quarantined: dict[str, str] = {}

    def building(self, recipe: Recipe) -> None:
        if recipe.name in self.quarantined:
            raise Quarantined(self.quarantined[recipe.name])
        self.calls.append(("building", recipe.name))

    def build_ended(self, recipe: Recipe) -> None:
        self.calls.append(("build ended", recipe.name))

    def changed(self, state: ValueState) -> None:
        self.states.append(state)

    def reset_failed(self, name: str, reason: str) -> None:
        self.calls.append(("reset failed", name, reason))

    def dirty(self, name: str, job: str, function: str) -> None:
        self.calls.append(("dirty", name, job, function))

    def only(self, kind: str) -> list[tuple[str, ...]]:
        return [call[1:] for call in self.calls if call[0] == kind]


class FakeLimits:
    """Notes what is bounded by how much; user code runs into its limit by raising ``TimeLimit`` itself."""

    def __init__(self) -> None:
        self.asked: list[tuple[float | None, str]] = []
        self.inside: list[str] = []

    @contextmanager
    def limit(self, seconds: float | None, what: str) -> Iterator[None]:
        self.asked.append((seconds, what))
        self.inside.append(what)
        try:
            yield
        finally:
            self.inside.pop()


class Env:
    """Reads as ``envq.env`` does: through the instance's namespace, and where that has nothing, the runtime."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "read_through":
            raise AttributeError(name)
        return self.__dict__["read through"](name)


class World:
    """Declares variables and runs jobs on one runtime."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.listener = Recorder()
        self.limits = FakeLimits()
        self.env = Env()
        self.log: list[str] = []
        self.recipes: dict[str, Recipe] = {}
        self.loop = asyncio.new_event_loop()
        self.runtime = Runtime(
            listener=self.listener,
            limits=self.limits,
            clock=self.clock,
            run_coroutine=self.run_coroutine,
            cache=self.env.__dict__,
            **options,
        )
        self.env.__dict__["read through"] = self.runtime.read

    def run_coroutine(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(coroutine)

    def declare(
        self,
        name: str,
        initializer: Callable[[], Any],
        reinitializer: Callable[[Any], Any] | None = None,
        *,
        check: Callable[[Any], Any] | None = None,
        teardown: Callable[[Any], Any] | None = None,
        version: int = 1,
        adopt: bool = True,
        **options: Any,
    ) -> None:
        """Like an assignment in the driver that has reached this process."""
        callables = Callables(initializer, reinitializer, check, teardown)
        options = {"epoch": 0, "digest": f"digest {version}", **options}
        self.recipes[name] = Recipe(name=name, version=version, load=lambda: callables, **options)
        if adopt:
            self.runtime.adopt(self.recipes)

    def rebuild(self, name: str) -> None:
        """Like `envq env rebuild NAME`."""
        old = self.recipes[name]
        fields = {key: getattr(old, key) for key in old.__dataclass_fields__}
        self.recipes[name] = Recipe(**{**fields, "epoch": old.epoch + 1})
        self.runtime.adopt(self.recipes)

    def remove(self, *names: str) -> None:
        for name in names:
            del self.recipes[name]
        self.runtime.adopt(self.recipes)

    @contextmanager
    def job(self, job_id: str = "job", function: str = "") -> Iterator[Env]:
        """A job around the block; however the block ends, the job ends."""
        self.runtime.begin_job(job_id, function)
        try:
            yield self.env
        finally:
            self.runtime.end_job()

    def seen(self, name: str) -> Any:
        """What a job that only reads it gets."""
        with self.job() as env:
            return getattr(env, name)

    def state(self, name: str) -> ValueState:
        return next(state for state in self.runtime.states() if state.name == name)

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        if self.runtime.next_retry is not None and self.runtime.next_retry <= self.clock.now:
            self.runtime.retry_due()

    def noting(self, text: str, result: Any = None) -> Callable[..., Any]:
        """A callable that leaves a line in the log."""

        def note(*_: Any) -> Any:
            self.log.append(text)
            return result

        return note


@pytest.fixture
def make_world() -> Iterator[Callable[..., World]]:
    worlds: list[World] = []

    def make(**options: Any) -> World:
        worlds.append(World(**options))
        return worlds[-1]

    yield make
    for each in worlds:
        each.runtime.close()
        assert not each.limits.inside
        each.loop.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()


@pytest.fixture
def runs_too_long() -> Callable[..., Any]:
    def run(*_: Any) -> Any:
        raise TimeLimit("too long")

    return run
