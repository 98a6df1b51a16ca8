"""Changing over to what is declared: new versions, rebuilds on request, removals (C11, C18)."""

from __future__ import annotations

from typing import Any

import pytest

from envq.errors import EnvironmentVariableFailed, NotDeclared
from envq.runtime import State


def identity(value: Any) -> Any:
    return value


def boom(*_: Any) -> Any:
    raise ValueError("boom")


def logged(world: Any, name: str) -> dict[str, Any]:
    return {
        "initializer": world.noting(f"build {name}", name),
        "reinitializer": identity,
        "teardown": world.noting(f"teardown {name}"),
    }


def test_the_same_identity_again_changes_nothing(world: Any) -> None:
    world.declare("thing", **logged(world, "v1"))
    world.declare("thing", **logged(world, "other code, same digest"))
    assert world.log == ["build v1"]


def test_other_timeouts_with_the_same_code_hold_without_a_build(world: Any) -> None:
    world.declare("thing", object, identity, reset_timeout=1.0)
    world.declare("thing", object, identity, reset_timeout=9.0)
    world.seen("thing")
    assert world.state("thing").builds == 1
    assert (9.0, "the reinitializer of 'thing'") in world.limits.asked


@pytest.mark.parametrize(("field", "value"), [("version", 2), ("digest", "other"), ("epoch", 1)])
def test_another_version_digest_or_epoch_is_built(world: Any, field: str, value: object) -> None:
    world.declare("thing", **logged(world, "v1"))
    world.declare("thing", **logged(world, "v2"), **{field: value})
    assert world.seen("thing") == "v2"


def test_keep_builds_the_new_one_before_letting_the_old_go(world: Any) -> None:
    world.declare("thing", **logged(world, "v1"))
    world.declare("thing", **logged(world, "v2"), version=2)
    assert world.log == ["build v1", "build v2", "teardown v1"]


def test_free_lets_the_old_go_before_building_the_new_one(world: Any) -> None:
    world.declare("thing", **logged(world, "v1"))
    world.declare("thing", **logged(world, "v2"), version=2, replace="free")
    assert world.log == ["build v1", "teardown v1", "build v2"]


def test_if_the_new_build_fails_the_old_goes_on_serving_and_the_state_says_so(world: Any) -> None:
    world.declare("thing", **logged(world, "v1"))
    world.declare("thing", boom, version=2)
    state = world.state("thing")
    assert (state.state, state.version) == (State.UPDATE_FAILED, 1)
    assert "ValueError: boom" in state.error
    assert world.seen("thing") == world.seen("thing") == "v1"
    assert "teardown v1" not in world.log


def test_a_failed_update_is_tried_again_and_then_replaces_the_old(world: Any) -> None:
    makers = [boom, boom, lambda: "v2"]
    world.declare("thing", **logged(world, "v1"))
    world.declare("thing", lambda: makers.pop(0)(), identity, version=2)
    for seconds in (1.0, 2.0):
        assert world.seen("thing") == "v1"
        world.pass_time(seconds)
    assert world.seen("thing") == "v2"
    assert (world.state("thing").state, world.state("thing").version) == (State.READY, 2)


def test_after_a_failed_update_the_old_version_is_reset_and_rebuilt_by_its_own_code(world: Any) -> None:
    world.declare("thing", world.noting("build v1", "v1"), teardown=world.noting("teardown v1"))
    world.declare("thing", boom, version=2)
    world.seen("thing")
    assert world.log == ["build v1", "teardown v1", "build v1"]
    assert world.state("thing").state is State.UPDATE_FAILED


def test_with_free_a_failing_new_build_leaves_nothing(world: Any) -> None:
    world.declare("thing", **logged(world, "v1"))
    world.declare("thing", boom, version=2, replace="free")
    state = world.state("thing")
    assert (state.state, state.version) == (State.FAILED, 2)
    with world.job() as env, pytest.raises(EnvironmentVariableFailed, match="version 2"):
        env.thing  # noqa: B018


def test_going_back_to_the_version_that_serves_ends_the_failed_update(world: Any) -> None:
    world.declare("thing", **logged(world, "v1"))
    world.declare("thing", boom, version=2)
    world.declare("thing", **logged(world, "v1"))
    assert (world.state("thing").state, world.state("thing").error) == (State.READY, "")
    assert world.log == ["build v1"]
    assert world.runtime.next_retry is None


def test_a_request_to_rebuild_builds_the_same_version_again(world: Any) -> None:
    world.declare("thing", **logged(world, "v1"))
    world.rebuild("thing")
    assert world.log == ["build v1", "build v1", "teardown v1"]
    assert (world.state("thing").version, world.state("thing").epoch) == (1, 1)


def test_a_request_to_rebuild_revives_what_was_given_up(world: Any) -> None:
    makers = [boom] * 5 + [lambda: "built"]
    world.declare("thing", lambda: makers.pop(0)())
    for _ in range(9):
        world.pass_time(100.0)
    assert world.state("thing").state is State.FAILED
    world.rebuild("thing")
    assert world.seen("thing") == "built"


def test_a_removed_name_is_torn_down_and_forgotten(world: Any) -> None:
    world.declare("thing", **logged(world, "v1"))
    world.remove("thing")
    assert world.log == ["build v1", "teardown v1"]
    assert world.runtime.states() == []
    with world.job() as env, pytest.raises(NotDeclared):
        env.thing  # noqa: B018


def test_a_value_that_was_used_is_not_reset_once_it_is_replaced(world: Any) -> None:
    world.declare("thing", object, world.noting("reset"))
    world.runtime.begin_job("never ended")
    assert world.env.thing
    world.declare("thing", **logged(world, "v2"), version=2)
    assert world.seen("thing") == "v2"
    assert "reset" not in world.log


def test_a_lazy_variable_that_is_built_changes_over_like_any_other(world: Any) -> None:
    world.declare("thing", **logged(world, "v1"), build="lazy")
    world.seen("thing")
    world.declare("thing", **logged(world, "v2"), version=2, build="lazy")
    assert world.log == ["build v1", "build v2", "teardown v1"]


def test_code_that_cannot_be_loaded_is_a_failed_build(world: Any) -> None:
    world.declare("thing", object, adopt=False)
    old = world.recipes["thing"]
    fields = {key: getattr(old, key) for key in old.__dataclass_fields__}
    world.recipes["thing"] = type(old)(**{**fields, "load": boom})
    world.runtime.adopt(world.recipes)
    assert world.state("thing").state is State.FAILED
    assert "boom" in world.state("thing").error


def test_code_is_loaded_once_for_all_rebuilds_of_a_version(world: Any) -> None:
    loads: list[int] = []
    world.declare("thing", object, adopt=False)
    old = world.recipes["thing"]
    fields = {key: getattr(old, key) for key in old.__dataclass_fields__}
    world.recipes["thing"] = type(old)(**{**fields, "load": lambda: loads.append(1) or old.load()})
    world.runtime.adopt(world.recipes)
    world.seen("thing")
    world.seen("thing")
    assert (len(loads), world.state("thing").builds) == (1, 3)


def test_code_is_not_loaded_again_to_follow_a_new_ground(world: Any) -> None:
    loads: list[int] = []
    world.declare("base", object, identity)
    world.declare("top", lambda: [world.env.base], identity, adopt=False)
    old = world.recipes["top"]
    fields = {key: getattr(old, key) for key in old.__dataclass_fields__}
    world.recipes["top"] = type(old)(**{**fields, "load": lambda: loads.append(1) or old.load()})
    world.runtime.adopt(world.recipes)
    world.declare("base", object, identity, version=2)
    assert (len(loads), world.state("top").builds) == (1, 2)


def test_when_the_old_version_cannot_be_rebuilt_either_the_new_one_gets_all_its_tries(world: Any) -> None:
    makers = [lambda: "v1", boom]
    world.declare("thing", lambda: makers.pop(0)())
    world.declare("thing", boom, version=2)
    while world.runtime.next_retry is not None:
        world.pass_time(8.0)
    world.seen("thing")
    assert (world.state("thing").state, world.state("thing").version) == (State.FAILED, 1)
    world.declare("thing", boom, version=2)
    assert world.runtime.next_retry == world.clock.now + 1.0
    world.pass_time(1.0)
    assert world.state("thing").version == 2


def test_would_build_says_whether_adopting_runs_an_initializer(world: Any) -> None:
    def would_build() -> bool:
        return world.runtime.would_build(world.recipes)

    world.declare("lazy", object, build="lazy", adopt=False)
    assert not would_build()
    world.declare("base", object, identity, adopt=False)
    assert would_build()
    world.runtime.adopt(world.recipes)
    assert not would_build()
    world.declare("lazy", object, build="lazy", version=2, adopt=False)
    assert not would_build()
    world.declare("top", lambda: [world.env.base])
    world.declare("top", lambda: [world.env.base], version=2, adopt=False)
    assert would_build()
    world.runtime.adopt(world.recipes)
    del world.recipes["lazy"]
    assert not would_build()
    del world.recipes["base"]
    assert would_build()
    world.runtime.adopt(world.recipes)
    assert not would_build()
    world.declare("base", object, build="lazy", adopt=False)
    assert would_build()
