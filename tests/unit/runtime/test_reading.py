"""Reads: the same object for a whole job, from the cache where that is right, and clear words where not."""

from __future__ import annotations

from typing import Any

import pytest

from envq.errors import EnvironmentVariableFailed, NotDeclared
from envq.runtime import State


class Awkward:
    """A value that answers no question one may ask of an object in passing."""

    def refuse(self, *_: Any) -> Any:
        raise AssertionError("a user's object was compared, tested or looked at")

    __eq__ = __ne__ = __bool__ = __len__ = __iter__ = __hash__ = __getattr__ = refuse  # type: ignore[assignment]

    @property
    def __class__(self) -> Any:
        return self.refuse()


def identity(value: Any) -> Any:
    return value


def test_in_one_job_every_read_gives_the_same_object(world: Any) -> None:
    world.declare("thing", object)
    with world.job() as env:
        assert env.thing is env.thing is world.runtime.read("thing")


def test_after_the_first_read_the_job_finds_it_without_asking(world: Any) -> None:
    world.declare("thing", object, identity)
    with world.job() as env:
        thing = env.thing
        assert env.__dict__["thing"] is thing
    assert "thing" not in env.__dict__


def test_a_user_of_the_job_before_does_not_unmark_the_next_one(world: Any) -> None:
    world.declare("x", lambda: 0, lambda x: x + 1)
    for expected in range(3):
        with world.job("same id") as env:
            assert (env.x, env.x) == (expected, expected)


def test_reads_of_a_build_do_not_reach_the_cache(world: Any) -> None:
    world.declare("a", object, identity)
    world.declare("b", lambda: [world.env.a], identity)
    assert "a" not in world.env.__dict__


def test_what_a_lazy_build_read_is_not_cached_for_the_job(world: Any) -> None:
    cached: list[bool] = []

    def make() -> list[Any]:
        made = [world.env.a]
        cached.append("a" in world.env.__dict__)
        return made

    world.declare("a", object, identity)
    world.declare("b", make, identity, build="lazy")
    assert world.seen("b")
    assert cached == [False]


def test_a_value_may_be_any_object(world: Any) -> None:
    awkward = Awkward()
    world.declare("awkward", lambda: awkward, identity, check=lambda _: True, teardown=lambda _: None)
    for _ in range(2):
        assert world.seen("awkward") is awkward
    world.declare("awkward", lambda: awkward, identity, version=2)
    assert world.seen("awkward") is awkward


def test_arrays_are_never_tested_for_truth(world: Any) -> None:
    numpy = pytest.importorskip("numpy")

    def zero(array: Any) -> Any:
        array[:] = 0
        return array

    world.declare("array", lambda: numpy.zeros(3), zero, check=lambda array: numpy.isfinite(array).all())
    with world.job() as env:
        env.array[:] = 1
    assert world.seen("array").sum() == 0


def test_an_unknown_name_is_refused_with_the_known_ones_and_what_to_do(make_world: Any) -> None:
    world = make_world(known_names=lambda: ["elsewhere"])
    world.declare("model", object)
    with world.job() as env, pytest.raises(NotDeclared) as caught:
        env.typo  # noqa: B018
    assert caught.value.name == "typo"
    for part in ("'typo'", "elsewhere, model", "envq.env.typo = envq.EnvironmentVariable("):
        assert part in str(caught.value)
    assert isinstance(caught.value, AttributeError)


def test_a_name_that_other_workers_build_is_told_apart_from_a_typo(make_world: Any) -> None:
    world = make_world(known_names=lambda: ["gpu_model"])
    with world.job() as env, pytest.raises(NotDeclared, match=r"not for this worker.*queues"):
        env.gpu_model  # noqa: B018


def test_states_tell_versions_counts_and_seconds(world: Any) -> None:
    def make() -> object:
        world.clock.now += 2.5
        return object()

    world.declare("thing", make, identity, version=3, digest="abc")
    world.seen("thing")
    state = world.state("thing")
    assert (state.version, state.digest, state.epoch, state.state) == (3, "abc", 0, State.READY)
    assert (state.builds, state.resets, state.uses, state.build_seconds) == (1, 1, 1, 2.5)


def test_uses_count_jobs_and_not_reads(world: Any) -> None:
    world.declare("thing", object, identity)
    for _ in range(3):
        with world.job() as env:
            assert env.thing is env.thing is world.runtime.read("thing")
    assert world.state("thing").uses == 3


def test_changes_of_state_are_told_in_order(world: Any) -> None:
    world.declare("thing", object)
    assert [each.state for each in world.listener.states] == [State.DECLARED, State.BUILDING, State.READY]


def test_after_close_nothing_is_handed_out(world: Any) -> None:
    world.declare("thing", object)
    world.runtime.begin_job("open")
    assert world.env.thing
    world.runtime.close()
    with pytest.raises((NotDeclared, EnvironmentVariableFailed)):
        world.env.thing  # noqa: B018
