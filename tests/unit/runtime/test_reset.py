"""Used values are clean for the next job, or nobody gets them (C4 to C8)."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from envq.errors import EnvironmentVariableFailed, JobTimedOut
from envq.runtime import State
from envq.variables import REBUILD


class Thing:
    def __init__(self) -> None:
        self.marks: list[str] = []


def clear(thing: Thing) -> Thing:
    thing.marks.clear()
    return thing


def identity(value: Any) -> Any:
    return value


def boom(*_: Any) -> Any:
    raise ValueError("boom")


def test_reinitializer_puts_the_value_back_for_the_next_job(world: Any) -> None:
    world.declare("thing", Thing, clear)
    with world.job() as env:
        env.thing.marks.append("dirty")
        first = env.thing
    with world.job() as env:
        assert env.thing is first
        assert env.thing.marks == []
    assert world.state("thing").builds == 1


def test_what_the_reinitializer_returns_is_the_value(world: Any) -> None:
    world.declare("numbers", lambda: [1], lambda numbers: [*numbers, 2])
    world.seen("numbers")
    assert world.seen("numbers") == [1, 2]


def test_without_a_reinitializer_the_initializer_runs_again(world: Any) -> None:
    world.declare("numbers", lambda: [1, 2, 3])
    for _ in range(3):
        with world.job() as env:
            env.numbers.append(4)
            assert env.numbers == [1, 2, 3, 4]
    assert world.state("numbers").builds == 4


def test_without_a_reinitializer_the_old_value_is_torn_down_before_the_new_one_is_made(world: Any) -> None:
    world.declare("thing", world.noting("init", "thing"), teardown=world.noting("teardown"))
    world.seen("thing")
    assert world.log == ["init", "teardown", "init"]


def test_the_old_object_is_freed_before_the_initializer_runs_again(world: Any) -> None:
    alive: list[bool] = []
    made: list[weakref.ref[Thing]] = []

    def make() -> Thing:
        gc.collect()
        alive.append(any(each() is not None for each in made))
        thing = Thing()
        made.append(weakref.ref(thing))
        return thing

    world.declare("thing", make, boom, teardown=boom)
    for _ in range(2):
        with world.job() as env:
            env.thing.marks.append("dirty")
    assert alive == [False, False, False]


def test_identity_keeps_the_object_as_it_is(world: Any) -> None:
    world.declare("thing", Thing, identity)
    with world.job() as env:
        env.thing.marks.append("stays")
    assert world.seen("thing").marks == ["stays"]


def test_the_first_job_sees_what_the_initializer_made(world: Any) -> None:
    world.declare("x", lambda: 0, lambda x: x + 1)
    assert [world.seen("x") for _ in range(3)] == [0, 1, 2]


def test_only_used_variables_are_reset(world: Any) -> None:
    world.declare("used", lambda: 0, lambda x: x + 1)
    world.declare("unused", lambda: 0, lambda x: x + 1)
    world.seen("used")
    assert (world.state("used").resets, world.state("unused").resets) == (1, 0)
    assert world.seen("unused") == 0


def test_the_reset_runs_when_the_job_ends_and_not_before(world: Any) -> None:
    world.declare("x", object, lambda x: world.noting("reset", x)())
    with world.job() as env:
        assert env.x
        assert world.log == []
        assert world.runtime.used == ("x",)
    assert world.log == ["reset"]
    assert world.runtime.used == ()


@pytest.mark.parametrize("error", [ValueError("boom"), JobTimedOut("late"), KeyboardInterrupt(), SystemExit(1)])
def test_a_value_is_clean_after_a_job_that_ended_by(world: Any, error: BaseException) -> None:
    world.declare("thing", Thing, clear)
    with pytest.raises(type(error)), world.job() as env:
        env.thing.marks.append("dirty")
        raise error
    assert world.seen("thing").marks == []


def test_entry_to_a_job_resets_what_an_earlier_one_left(world: Any) -> None:
    world.declare("thing", Thing, clear)
    world.runtime.begin_job("never ended")
    world.env.thing.marks.append("dirty")
    assert world.seen("thing").marks == []


def test_entry_to_a_job_rebuilds_what_cannot_be_reset(world: Any) -> None:
    world.declare("thing", Thing, boom)
    world.runtime.begin_job("never ended")
    world.env.thing.marks.append("dirty")
    assert world.seen("thing").marks == []


def test_what_is_read_outside_a_job_is_reset_before_the_next_one(world: Any) -> None:
    world.declare("thing", Thing, clear)
    world.env.thing.marks.append("dirty")
    assert "thing" not in world.env.__dict__
    assert world.seen("thing").marks == []


def test_an_interrupt_between_two_statements_of_the_reset_leaves_nothing_dirty(world: Any) -> None:
    world.declare("thing", Thing, clear)
    table = world.runtime._table
    world.runtime.begin_job("one")
    world.env.thing.marks.append("dirty")
    table.frames.append(object())  # as if the interrupt had come while it was left
    table.serving = True
    assert world.seen("thing").marks == []


def interrupted(*_: Any) -> Any:
    raise JobTimedOut("late")


@pytest.mark.parametrize(
    ("reinitializer", "reason"),
    [
        (boom, "ValueError: boom"),
        (lambda thing: REBUILD, "envq.REBUILD"),
        (lambda thing: None, "None"),
        (interrupted, "JobTimedOut: late"),
    ],
)
def test_a_reset_that_did_not_work_is_a_rebuild_with_a_warning(
    world: Any, caplog: pytest.LogCaptureFixture, reinitializer: Callable[..., Any], reason: str
) -> None:
    world.declare("thing", Thing, reinitializer, teardown=world.noting("teardown"))
    with world.job() as env:
        dirty = env.thing
    assert world.log == ["teardown"]
    ((name, told),) = world.listener.only("reset failed")
    assert name == "thing"
    assert reason in told
    assert "thing" in caplog.text
    assert reason in caplog.text
    assert isinstance(world.seen("thing"), Thing)
    assert world.seen("thing") is not dirty


def test_a_reset_past_its_time_limit_is_a_rebuild(world: Any, runs_too_long: Callable[..., Any]) -> None:
    world.declare("thing", Thing, runs_too_long, reset_timeout=7.5)
    with world.job() as env:
        dirty = env.thing
    assert (7.5, "the reinitializer of 'thing'") in world.limits.asked
    ((_, reason),) = world.listener.only("reset failed")
    assert "reset_timeout (7.5 s)" in reason
    assert world.seen("thing") is not dirty


def test_a_value_that_is_none_may_stay_none(world: Any) -> None:
    world.declare("nothing", lambda: None, identity)
    assert world.seen("nothing") is None
    assert world.seen("nothing") is None
    assert world.listener.only("reset failed") == []
    assert world.state("nothing").builds == 1


def test_when_the_rebuild_fails_too_nobody_gets_the_dirty_value(world: Any) -> None:
    makers = [Thing, boom, Thing]
    world.declare("thing", lambda: makers.pop(0)(), boom)
    world.seen("thing")
    assert world.state("thing").state is State.FAILED
    assert "boom" in world.state("thing").error
    with world.job() as env, pytest.raises(EnvironmentVariableFailed, match="ValueError: boom"):
        env.thing  # noqa: B018
    world.pass_time(1.0)
    assert isinstance(world.seen("thing"), Thing)


def test_a_thread_left_behind_means_rebuild_and_not_reset(world: Any) -> None:
    world.declare("thing", Thing, identity)
    world.declare("other", Thing, identity)
    other = world.seen("other")
    with world.job() as env:
        kept_by_the_thread = env.thing
        world.runtime.distrust_used("a thread was left behind")
    assert world.seen("thing") is not kept_by_the_thread
    assert world.seen("other") is other
    assert world.listener.only("reset failed") == [("thing", "a thread was left behind")]


def test_a_broken_listener_keeps_nothing_from_being_reset(world: Any) -> None:
    world.listener.reset_failed = world.listener.changed = world.listener.build_ended = boom
    world.declare("thing", Thing, boom)
    with world.job() as env:
        env.thing.marks.append("dirty")
    assert world.seen("thing").marks == []


def test_nothing_is_asked_or_run_when_a_job_read_nothing(world: Any) -> None:
    world.declare("thing", Thing, clear)
    before = len(world.limits.asked)
    with world.job():
        pass
    assert len(world.limits.asked) == before
    assert world.state("thing").resets == 0


def test_coroutine_reinitializers_are_awaited(world: Any) -> None:
    async def reset(x: int) -> int:
        return x + 1

    world.declare("x", lambda: 0, reset)
    assert [world.seen("x") for _ in range(3)] == [0, 1, 2]


def test_a_reinitializer_may_read_its_own_variable_and_others(world: Any) -> None:
    def reset(thing: Thing) -> Thing:
        assert world.env.thing is thing
        assert world.env.other.marks == []
        return clear(thing)

    world.declare("thing", Thing, reset)
    world.declare("other", Thing, clear)
    with world.job() as env:
        env.thing.marks.append("dirty")
        env.other.marks.append("dirty")
    assert world.listener.only("reset failed") == []
    assert world.state("other").resets == 1


def test_reinitializers_that_read_each_other_end_in_rebuilds_not_in_a_loop(world: Any) -> None:
    def reset_a(thing: Thing) -> Thing:
        return clear(world.env.b) and clear(thing)

    def reset_b(thing: Thing) -> Thing:
        return clear(world.env.a) and clear(thing)

    world.declare("a", Thing, reset_a)
    world.declare("b", Thing, reset_b)
    with world.job() as env:
        env.a.marks.append("dirty")
        env.b.marks.append("dirty")
    assert (world.seen("a").marks, world.seen("b").marks) == ([], [])
    assert "circle" in world.listener.only("reset failed")[0][1]
