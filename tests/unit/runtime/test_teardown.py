"""Every value that is let go is torn down once, last built first, and an error in that stops nothing (C10)."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial, wraps
from types import ModuleType
from typing import Any

import pytest

from envq.code.path_reference import PathReference
from envq.runtime import State


def identity(value: Any) -> Any:
    return value


def boom(*_: Any) -> Any:
    raise ValueError("boom")


def numbered(world: Any, name: str) -> dict[str, Any]:
    """An initializer that makes name1, name2, … and a teardown that logs what it gets."""
    count = iter(range(1, 100))
    return {"initializer": lambda: f"{name}{next(count)}", "teardown": world.log.append}


def test_rebuilt_replaced_removed_and_closed_values_are_torn_down_once_each(world: Any) -> None:
    thing = numbered(world, "thing")
    world.declare("thing", **thing)
    world.seen("thing")  # rebuilt, for want of a reinitializer
    assert world.log == ["thing1"]
    world.declare("thing", **thing, version=2)
    assert world.log == ["thing1", "thing2"]
    world.remove("thing")
    assert world.log == ["thing1", "thing2", "thing3"]
    world.declare("thing", **thing)
    world.runtime.close()
    world.runtime.close()
    assert world.log == ["thing1", "thing2", "thing3", "thing4"]


def test_teardown_gets_the_value_as_it_is_now(world: Any) -> None:
    world.declare("x", lambda: 0, lambda x: x + 1, teardown=world.log.append)
    world.seen("x")
    world.seen("x")
    world.runtime.close()
    assert world.log == [2]


def test_closing_goes_in_reverse_order_of_building(world: Any) -> None:
    for name in "abc":
        world.declare(name, **numbered(world, name))
    world.seen("a")  # rebuilt, so it is the youngest now
    world.log.clear()
    world.runtime.close()
    assert world.log == ["a2", "c1", "b1"]


def test_an_error_in_a_teardown_is_logged_and_never_fatal(
    world: Any, caplog: pytest.LogCaptureFixture, runs_too_long: Callable[..., Any]
) -> None:
    world.declare("last", **numbered(world, "last"))
    world.declare("broken", object, teardown=boom)
    world.declare("hanging", object, teardown=runs_too_long)
    world.declare("exiting", object, teardown=lambda _: exit(1))
    world.runtime.close()
    assert world.log == ["last1"]
    for part in ("'broken'", "ValueError: boom", "'hanging'", "TimeLimit", "'exiting'"):
        assert part in caplog.text


def test_teardown_runs_under_the_reset_timeout(world: Any) -> None:
    world.declare("thing", **numbered(world, "thing"), reset_timeout=3.0)
    world.runtime.close()
    assert (3.0, "the teardown of 'thing'") in world.limits.asked


def test_a_generator_initializer_yields_the_value_and_its_rest_tears_it_down(world: Any) -> None:
    def make() -> Iterator[str]:
        world.log.append("init")
        yield "thing"
        world.log.append("rest")

    world.declare("thing", make)
    assert world.seen("thing") == "thing"
    assert world.log == ["init", "rest", "init"]
    world.runtime.close()
    assert world.log == ["init", "rest", "init", "rest"]


def test_an_async_generator_initializer_works_alike(world: Any) -> None:
    async def make() -> AsyncIterator[str]:
        yield "thing"
        world.log.append("rest")

    world.declare("thing", make, identity)
    assert world.seen("thing") == "thing"
    world.runtime.close()
    assert world.log == ["rest"]


def test_with_both_the_teardown_runs_before_the_rest_of_the_generator(world: Any) -> None:
    def make() -> Iterator[str]:
        yield "thing"
        world.log.append("rest")

    world.declare("thing", make, teardown=world.log.append)
    world.runtime.close()
    assert world.log == ["thing", "rest"]


def test_the_rest_runs_although_the_teardown_raised(world: Any) -> None:
    def make() -> Iterator[str]:
        yield "thing"
        world.log.append("rest")

    world.declare("thing", make, teardown=boom)
    world.runtime.close()
    assert world.log == ["rest"]


def sync_twice() -> Iterator[int]:
    yield 1
    yield 2


async def async_twice() -> AsyncIterator[int]:
    yield 1
    yield 2


@pytest.mark.parametrize("make", [sync_twice, async_twice])
def test_a_second_yield_is_an_error_in_the_log(
    world: Any, caplog: pytest.LogCaptureFixture, make: Callable[[], Any]
) -> None:
    world.declare("thing", make, identity)
    assert world.seen("thing") == 1
    world.runtime.close()
    assert "yielded a second time" in caplog.text


def no_yield() -> Iterator[int]:
    if not no_yield:
        yield 1


async def async_no_yield() -> AsyncIterator[int]:
    if not no_yield:
        yield 1


@pytest.mark.parametrize("make", [no_yield, async_no_yield])
def test_a_generator_that_yields_nothing_is_a_failed_build(world: Any, make: Callable[[], Any]) -> None:
    world.declare("thing", make)
    assert world.state("thing").state is State.FAILED
    assert "without a yield" in world.state("thing").error


class Maker:
    def __call__(self) -> Iterator[str]:
        yield "thing"

    def method(self) -> Iterator[str]:
        yield "thing"


def generator(value: str = "thing") -> Iterator[str]:
    yield value


@wraps(generator)
def wrapped() -> Iterator[str]:
    return generator()


@pytest.mark.parametrize("make", [Maker(), Maker().method, partial(generator, "thing"), wrapped])
def test_every_kind_of_generator_function_yields_its_value(world: Any, make: Callable[[], Any]) -> None:
    world.declare("thing", make, identity)
    assert world.seen("thing") == "thing"


def test_a_generator_function_named_by_path_yields_its_value(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("made_for_this_test")
    vars(module)["generator"] = generator
    monkeypatch.setitem(sys.modules, module.__name__, module)
    world.declare("thing", PathReference("made_for_this_test:generator"), identity)
    assert world.seen("thing") == "thing"


def test_a_generator_that_a_function_returns_is_the_value_itself(world: Any) -> None:
    world.declare("thing", lambda: (n for n in range(3)), identity)
    assert list(world.seen("thing")) == [0, 1, 2]


def test_coroutines_make_and_tear_down_values(world: Any) -> None:
    async def make() -> str:
        return "thing"

    async def teardown(value: str) -> None:
        world.log.append(value)

    world.declare("thing", make, identity, teardown=teardown)
    assert world.seen("thing") == "thing"
    world.runtime.close()
    assert world.log == ["thing"]


def test_a_teardown_may_read_what_its_value_stands_on_and_itself(world: Any) -> None:
    world.declare("a", **numbered(world, "a"))
    world.declare(
        "b", lambda: f"b on {world.env.a}", teardown=lambda b: world.log.append((b, world.env.b, world.env.a))
    )
    world.declare("a", **numbered(world, "a again "), version=2)
    assert world.log == [("b on a1", "b on a1", "a1"), "a1"]


def test_a_teardown_builds_nothing(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    world.declare("lazy", world.noting("built"), build="lazy")
    world.declare("thing", object, teardown=lambda _: world.env.lazy)
    world.runtime.close()
    assert world.log == []
    assert "'lazy' (version 1) is not built" in caplog.text


def test_a_value_that_came_too_late_is_torn_down(make_world: Any) -> None:
    """The limit may run out between the initializer's last statement and the end of the block."""
    world = make_world()
    world.declare("thing", **numbered(world, "thing"), adopt=False)

    class Late:
        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None:
            raise TimeoutError("late")

    limit = world.limits.limit
    world.limits.limit = lambda seconds, what: Late() if "initializer" in what else limit(seconds, what)
    world.runtime._replacing._building._ports.limits.limit = world.limits.limit
    world.runtime.adopt(world.recipes)
    assert world.state("thing").state is State.FAILED
    assert world.log == ["thing1"]
