"""Variables built on variables: order of building, use, reset and teardown, and what follows what (C13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from envq.errors import DependencyCycle, EnvironmentVariableFailed, NotDeclared
from envq.runtime import State


class Thing:
    def __init__(self, *grounds: Any) -> None:
        self.grounds = grounds
        self.marks: list[str] = []


def clear(thing: Thing) -> Thing:
    thing.marks.clear()
    return thing


def identity(value: Any) -> Any:
    return value


def boom(*_: Any) -> Any:
    raise ValueError("boom")


def on(world: Any, *names: str) -> Callable[[], Thing]:
    """An initializer that reads these."""

    def make() -> Thing:
        return Thing(*[getattr(world.env, name) for name in names])

    return make


def logging_reset(world: Any, name: str) -> Callable[[Thing], Thing]:
    return lambda thing: world.log.append(f"reset {name}") or clear(thing)


def test_what_an_initializer_reads_is_built_first(world: Any) -> None:
    world.declare("top", on(world, "middle"), clear, adopt=False)
    world.declare("middle", on(world, "base"), clear, adopt=False)
    world.declare("base", Thing, clear)
    assert [name for (name,) in world.listener.only("building")] == ["top", "middle", "base"]
    assert [name for (name,) in world.listener.only("build ended")] == ["base", "middle", "top"]
    with world.job() as env:
        assert env.top.grounds == (env.middle,)
        assert env.middle.grounds == (env.base,)


def test_a_lazy_variable_that_an_eager_one_reads_is_built_with_it(world: Any) -> None:
    world.declare("base", Thing, clear, build="lazy")
    world.declare("top", on(world, "base"), clear)
    assert world.state("base").state is State.READY


def test_using_one_counts_as_using_what_it_stands_on_down_to_the_ground(world: Any) -> None:
    world.declare("base", Thing, clear)
    world.declare("middle", on(world, "base"), clear)
    world.declare("top", on(world, "middle"), clear)
    with world.job() as env:
        env.top.grounds[0].grounds[0].marks.append("dirty")
    assert world.seen("base").marks == []


def test_using_the_ground_does_not_use_what_stands_on_it(world: Any) -> None:
    world.declare("base", Thing, clear)
    world.declare("top", on(world, "base"), clear)
    world.seen("base")
    assert world.state("top").resets == 0


def test_resets_run_on_the_ground_first(world: Any) -> None:
    world.declare("top", on(world, "middle"), logging_reset(world, "top"), adopt=False)
    world.declare("middle", on(world, "base"), logging_reset(world, "middle"), adopt=False)
    world.declare("base", Thing, logging_reset(world, "base"))
    world.seen("top")
    assert world.log == ["reset base", "reset middle", "reset top"]


@pytest.mark.parametrize("reset_base", [None, lambda _: Thing(), boom])
def test_what_stands_on_another_object_now_is_rebuilt(world: Any, reset_base: Any) -> None:
    world.declare("base", Thing, reset_base)
    world.declare("middle", on(world, "base"), clear)
    world.declare("top", on(world, "middle"), clear)
    with world.job() as env:
        old = env.base, env.middle, env.top
    with world.job() as env:
        assert env.top.grounds == (env.middle,)
        assert env.middle.grounds == (env.base,)
        assert not {env.base, env.middle, env.top} & set(old)


def test_what_stands_on_a_new_version_is_rebuilt(world: Any) -> None:
    world.declare("base", lambda: "base 1", identity)
    world.declare("top", lambda: f"top on {world.env.base}", identity)
    world.declare("base", lambda: "base 2", identity, version=2)
    assert world.seen("top") == "top on base 2"


@pytest.mark.parametrize("replace", ["keep", "free"])
def test_what_stands_on_a_value_is_torn_down_before_it(world: Any, replace: str) -> None:
    world.declare("base", Thing, clear, teardown=world.noting("teardown base"))
    world.declare("top", on(world, "base"), clear, teardown=world.noting("teardown top"))
    world.declare("base", Thing, clear, version=2, replace=replace)
    assert world.log == ["teardown top", "teardown base"]
    with world.job() as env:
        assert env.top.grounds == (env.base,)


def test_two_new_versions_at_once_meet(world: Any) -> None:
    world.declare("top", lambda: f"top 1 on {world.env.base}", identity, adopt=False)
    world.declare("base", lambda: "base 1", identity, teardown=world.noting("teardown base 1"))
    world.declare("top", lambda: f"top 2 on {world.env.base}", identity, version=2, adopt=False)
    world.declare("base", lambda: "base 2", identity, version=2)
    assert world.seen("top") == "top 2 on base 2"
    assert (world.state("top").builds, world.state("base").builds) == (2, 2)
    assert world.log == ["teardown base 1"]


def test_if_the_rebuild_on_a_new_ground_fails_the_old_pair_goes_on_serving(world: Any) -> None:
    def make_top() -> Thing:
        if world.env.base == "base 2":
            boom()
        return Thing(world.env.base)

    world.declare("base", lambda: "base 1", identity, teardown=world.log.append)
    world.declare("top", make_top, clear)
    world.declare("base", lambda: "base 2", identity, teardown=world.log.append, version=2)
    assert world.state("top").state is State.UPDATE_FAILED
    with world.job() as env:
        assert env.top.grounds == ("base 1",)
        assert env.base == "base 2"
        env.top.marks.append("dirty")
    assert world.seen("top").marks == []
    assert world.log == []
    world.remove("base")
    assert world.log == ["base 2", "base 1"]


def test_an_old_ground_under_a_failed_update_is_reset_too(world: Any) -> None:
    def make_top() -> Thing:
        if "version 2" in world.env.base.grounds:
            boom()
        return Thing(world.env.base)

    world.declare("base", Thing, clear)
    world.declare("top", make_top, clear)
    world.declare("base", lambda: Thing("version 2"), clear, version=2)
    with world.job() as env:
        env.top.grounds[0].marks.append("dirty")
    assert world.seen("top").grounds[0].marks == []


def test_old_values_go_as_soon_as_nothing_stands_on_them(world: Any) -> None:
    broken = [True]

    def make_top() -> Thing:
        if world.env.base == "base 2" and broken:
            boom()
        return Thing(world.env.base)

    world.declare("base", lambda: "base 1", identity, teardown=world.log.append)
    world.declare("top", make_top, clear)
    world.declare("base", lambda: "base 2", identity, version=2)
    broken.clear()
    world.pass_time(1.0)
    assert world.log == ["base 1"]
    assert world.seen("top").grounds == ("base 2",)


def test_a_failed_update_keeps_serving_on_a_ground_that_is_replaced_freely(world: Any) -> None:
    world.declare("base", lambda: "base 1", identity)
    world.declare("top", lambda: f"top on {world.env.base}", identity)
    world.declare("top", boom, version=2)
    world.declare("base", lambda: "base 2", identity, version=2, replace="free")
    assert world.seen("top") == "top on base 2"
    assert world.state("top").state is State.UPDATE_FAILED


def test_a_failed_update_keeps_serving_when_its_ground_is_removed_if_it_can_do_without(world: Any) -> None:
    def make_top() -> str:
        try:
            return f"top on {world.env.base}"
        except NotDeclared:
            return "top alone"

    world.declare("base", lambda: "base", identity)
    world.declare("top", make_top, identity)
    world.declare("top", boom, version=2)
    world.remove("base")
    assert world.seen("top") == "top alone"
    assert world.state("top").state is State.UPDATE_FAILED


def test_when_the_ground_is_removed_what_stood_on_it_fails_with_its_name(world: Any) -> None:
    world.declare("base", Thing, clear)
    world.declare("top", on(world, "base"), clear)
    world.remove("base")
    assert world.state("top").state is State.FAILED
    assert "'base' is not declared" in world.state("top").error
    assert world.runtime.next_retry is None


def test_what_failed_for_want_of_a_name_is_built_when_that_is_declared(world: Any) -> None:
    world.declare("top", on(world, "base"), clear)
    assert world.state("top").state is State.FAILED
    world.declare("base", Thing, clear, build="lazy")
    assert world.state("top").state is State.READY


def test_a_failing_ground_fails_what_needs_it_and_is_named_as_the_cause(world: Any) -> None:
    world.declare("base", boom)
    world.declare("top", on(world, "base"), clear)
    error = world.state("top").error
    assert world.state("top").state is State.FAILED
    assert "environment variable 'base' (version 1)" in error
    assert "ValueError: boom" in error
    with world.job() as env, pytest.raises(EnvironmentVariableFailed, match="as soon as base can be read"):
        env.top  # noqa: B018


@pytest.mark.parametrize("revive", ["retry", "redeclare"])
def test_what_needs_a_failing_ground_comes_up_with_it(world: Any, revive: str) -> None:
    makers = [boom, Thing]
    world.declare("top", on(world, "middle"), clear, adopt=False)
    world.declare("middle", on(world, "base"), clear, adopt=False)
    world.declare("base", lambda: makers.pop(0)(), clear)
    tries = len(world.listener.only("building"))
    if revive == "retry":
        world.pass_time(1.0)
    else:
        world.declare("base", Thing, clear, version=2)
    assert {state.state for state in world.runtime.states()} == {State.READY}
    assert len(world.listener.only("building")) == tries + 3


def test_an_initializer_may_do_without_what_it_cannot_read(world: Any) -> None:
    def make() -> Thing:
        try:
            return Thing(world.env.base)
        except EnvironmentVariableFailed:
            return Thing()

    world.declare("base", boom)
    world.declare("top", make, clear)
    assert world.state("top").state is State.READY


def test_a_failure_of_its_own_is_retried_by_the_clock_although_a_read_failed(world: Any) -> None:
    def make() -> Thing:
        try:
            return Thing(world.env.base)
        except EnvironmentVariableFailed as error:
            raise ValueError("cannot do without") from error

    world.declare("base", boom)
    world.declare("top", make, clear)
    while world.runtime.next_retry is not None:
        world.pass_time(1.0)
    assert world.listener.only("building").count(("top",)) == 5


def test_a_circle_is_an_error_that_shows_it(world: Any) -> None:
    world.declare("a", on(world, "b"), adopt=False)
    world.declare("b", on(world, "a"))
    assert {state.state for state in world.runtime.states()} == {State.FAILED}
    assert "a → b → a" in world.state("a").error
    assert world.runtime.next_retry is None
    with world.job() as env, pytest.raises(DependencyCycle, match="a → b → a"):
        env.a  # noqa: B018


def test_a_circle_that_closes_one_declaration_at_a_time_is_shown(world: Any) -> None:
    """What failed for the lack of what had failed itself must not tell of that for ever."""
    for name, ground in (("a", "b"), ("b", "c"), ("c", "a")):
        world.declare(name, on(world, ground))
    for name in "abc":
        with world.job() as env, pytest.raises(DependencyCycle, match=r"in a circle: (\w) → \w → \w → \1"):
            getattr(env, name)
    assert world.runtime.next_retry is None


def test_a_circle_of_one_and_circles_of_lazy_ones_are_found_at_the_read(world: Any) -> None:
    world.declare("self", on(world, "self"), build="lazy")
    world.declare("a", on(world, "b"), build="lazy")
    world.declare("b", on(world, "c"), build="lazy")
    world.declare("c", on(world, "b"), build="lazy")
    for name, circle in {"self": "self → self", "a": "b → c → b"}.items():
        with world.job() as env, pytest.raises(DependencyCycle, match=circle):
            getattr(env, name)


def test_a_circle_that_closes_through_a_built_value_is_found(world: Any) -> None:
    world.declare("a", lambda: "a 1", identity)
    world.declare("b", on(world, "a"), clear)
    world.declare("a", on(world, "b"), clear, version=2)
    assert world.state("a").state is State.UPDATE_FAILED
    assert "a → b → a" in world.state("a").error
    assert world.seen("a") == "a 1"


def test_a_circle_that_is_opened_by_another_version_is_built(world: Any) -> None:
    world.declare("a", on(world, "b"), clear, adopt=False)
    world.declare("b", on(world, "a"), clear)
    world.declare("b", Thing, clear, version=2)
    with world.job() as env:
        assert env.a.grounds == (env.b,)


def test_initializers_that_read_each_other_only_now_and_then_do_not_loop(world: Any) -> None:
    def reads(name: str) -> Callable[[], Thing]:
        def make() -> Thing:
            try:
                return Thing(getattr(world.env, name))
            except DependencyCycle:
                return Thing()

        return make

    world.declare("a", reads("b"), clear, adopt=False)
    world.declare("b", reads("a"), clear)
    for version in (2, 3):
        world.declare("a", reads("b"), clear, version=version)
    assert len(world.listener.only("building")) < 20


def test_a_lazy_build_reads_what_the_job_has_cached_and_stands_on_it(world: Any) -> None:
    world.declare("base", Thing, lambda _: Thing())
    world.declare("top", on(world, "base"), clear, build="lazy")
    with world.job() as env:
        assert env.base is env.top.grounds[0]
    with world.job() as env:
        assert env.base is env.top.grounds[0]


def test_what_was_built_on_a_value_the_job_may_have_changed_is_rebuilt_after_it(world: Any) -> None:
    world.declare("base", Thing, clear)
    world.declare("top", lambda: list(world.env.base.marks), identity, build="lazy")
    with world.job() as env:
        env.base.marks.append("dirty")
        assert env.top == ["dirty"]
    assert world.seen("top") == []
    assert world.listener.only("reset failed") == []


def test_what_was_built_in_a_job_on_clean_values_is_kept(world: Any) -> None:
    world.declare("base", Thing, clear)
    world.declare("middle", on(world, "base"), clear, build="lazy")
    world.declare("top", on(world, "middle", "base"), clear, build="lazy")
    world.seen("top")
    assert (world.state("top").builds, world.state("middle").builds) == (1, 1)


def test_a_rebuild_between_jobs_reads_only_what_is_clean(world: Any) -> None:
    """`late` is older than what it comes to read, so the order of building alone would reset it first."""
    wants_more: list[str] = []
    world.declare("late", lambda: [getattr(world.env, name).marks[:] for name in wants_more])
    world.declare("base", Thing, clear)
    world.declare("top", on(world, "base"), clear)
    wants_more.extend(["top", "base"])
    with world.job() as env:
        assert env.late == []
        env.top.marks.append("dirty")
        env.base.marks.append("dirty")
    assert world.seen("late") == [[], []]


def test_a_ground_that_is_dirty_is_cleaned_even_where_only_what_stands_on_it_is_read(world: Any) -> None:
    wants_more: list[str] = []
    world.declare("late", lambda: [world.env.top.grounds[0].marks[:] for _ in wants_more])
    world.declare("base", Thing, clear)
    world.declare("top", on(world, "base"), clear)
    wants_more.append("top")
    with world.job() as env:
        assert env.late == []
        env.base.marks.append("dirty")
    assert world.seen("late") == [[]]
