"""A failing initializer never loops, hangs or disappears (C14); interrupts of a job are not its failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from envq.errors import EnvironmentVariableFailed, JobTimedOut
from envq.runtime import ATTEMPTS, RETRY_DELAYS, State
from envq.runtime.calling import MAX_TRACEBACK_CHARS


def identity(value: Any) -> Any:
    return value


def load_weights() -> Any:
    raise OSError("no weights here")


def failing_times(times: int) -> Callable[[], Any]:
    left = iter(range(times))

    def make() -> str:
        if next(left, None) is not None:
            load_weights()
        return "built"

    return make


def test_a_failing_build_raises_nothing_and_says_failed_with_its_traceback(world: Any) -> None:
    world.declare("model", load_weights)
    state = world.state("model")
    assert state.state is State.FAILED
    assert state.error.startswith("Traceback")
    assert "in load_weights" in state.error
    assert "OSError: no weights here" in state.error


def test_the_traceback_begins_with_the_users_code(world: Any) -> None:
    world.declare("model", load_weights)
    assert "runtime/building" not in world.state("model").error


def test_a_job_that_reads_it_fails_at_once_with_name_version_and_traceback(world: Any) -> None:
    world.declare("model", load_weights, version=7)
    tries = len(world.listener.only("building"))
    with world.job() as env, pytest.raises(EnvironmentVariableFailed) as caught:
        env.model  # noqa: B018
    for part in ("'model'", "version 7", "in load_weights", "no weights here"):
        assert part in str(caught.value)
    assert caught.value.name == "model"
    assert len(world.listener.only("building")) == tries


def test_it_is_tried_five_times_with_growing_pauses_and_then_no_more(world: Any) -> None:
    world.declare("model", load_weights)
    moments = [world.clock.now]
    while (due := world.runtime.next_retry) is not None:
        world.clock.now = due - 0.01
        world.runtime.retry_due()
        assert len(world.listener.only("building")) == len(moments)
        world.clock.now = due
        world.runtime.retry_due()
        moments.append(due)
    assert [after - before for before, after in pairwise(moments)] == [1, 2, 4, 8]
    assert len(world.listener.only("building")) == ATTEMPTS == len(RETRY_DELAYS) + 1
    world.pass_time(1e6)
    world.runtime.retry_due()
    world.runtime.adopt(world.recipes)
    assert len(world.listener.only("building")) == ATTEMPTS
    with world.job() as env, pytest.raises(EnvironmentVariableFailed, match="envq env rebuild model"):
        env.model  # noqa: B018


def test_slow_failing_builds_do_not_use_up_their_tries_at_once(world: Any) -> None:
    def make() -> None:
        world.clock.now += 60.0
        load_weights()

    world.declare("model", make)
    world.clock.now += 1.0
    world.runtime.retry_due()
    assert len(world.listener.only("building")) == 2


def test_a_retry_that_works_makes_it_ready(world: Any) -> None:
    world.declare("model", failing_times(2), identity)
    world.pass_time(1.0)
    world.pass_time(2.0)
    assert world.seen("model") == "built"
    assert world.state("model").error == ""
    assert world.runtime.next_retry is None


def test_another_version_starts_over(world: Any) -> None:
    world.declare("model", load_weights)
    world.pass_time(1.0)
    world.declare("model", load_weights, version=2)
    assert world.runtime.next_retry == world.clock.now + 1.0


def test_others_are_built_although_one_fails(world: Any) -> None:
    world.declare("model", load_weights)
    world.declare("other", object)
    assert world.state("other").state is State.READY


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), JobTimedOut("stray"), GeneratorExit()])
def test_whatever_ends_a_build_between_jobs_is_a_failed_build(world: Any, error: BaseException) -> None:
    def make() -> None:
        raise error

    world.declare("model", make)
    assert world.state("model").state is State.FAILED


def test_a_build_past_its_time_limit_is_a_failed_build(world: Any, runs_too_long: Callable[..., Any]) -> None:
    world.declare("model", runs_too_long, init_timeout=5.0)
    assert (5.0, "the initializer of 'model'") in world.limits.asked
    assert "TimeLimit" in world.state("model").error


def test_a_refused_build_is_quarantined_with_the_reason(world: Any) -> None:
    world.listener.quarantined["model"] = "killed its process 3 times on this host"
    world.declare("model", world.noting("built"))
    assert world.log == []
    assert world.state("model").state is State.QUARANTINED
    assert world.runtime.next_retry is None
    assert world.listener.only("build ended") == []
    with world.job() as env, pytest.raises(EnvironmentVariableFailed, match=r"version 1.*killed its process 3 times"):
        env.model  # noqa: B018


def test_another_version_ends_the_quarantine(world: Any) -> None:
    world.listener.quarantined["model"] = "killed its process"
    world.declare("model", object)
    world.listener.quarantined.clear()
    world.declare("model", lambda: "v2", version=2)
    assert world.seen("model") == "v2"


def test_under_a_quarantined_update_the_old_goes_on_serving(world: Any) -> None:
    world.declare("model", lambda: "v1", identity)
    world.listener.quarantined["model"] = "killed its process"
    world.declare("model", lambda: "v2", version=2)
    assert (world.state("model").state, world.seen("model")) == (State.UPDATE_FAILED, "v1")
    assert "killed its process" in world.state("model").error


def test_a_try_that_cannot_be_counted_does_not_run(world: Any) -> None:
    world.listener.building = lambda recipe: load_weights()
    world.declare("model", world.noting("built"))
    assert world.log == []
    assert world.state("model").state is State.FAILED
    assert world.runtime.next_retry == world.clock.now + 1.0


def test_the_listener_hears_of_the_end_of_every_try(world: Any) -> None:
    world.declare("model", failing_times(1))
    world.pass_time(1.0)
    assert world.listener.calls == [("building", "model"), ("build ended", "model")] * 2


def test_a_lazy_variable_is_built_at_the_first_read(world: Any) -> None:
    world.declare("model", world.noting("built", "model"), identity, build="lazy", init_timeout=5.0)
    assert world.state("model").state is State.DECLARED
    assert world.runtime.next_retry is None
    assert world.log == []
    assert world.seen("model") == world.seen("model") == "model"
    assert world.log == ["built"]
    assert (5.0, "the initializer of 'model'") in world.limits.asked


def test_a_lazy_build_that_fails_fails_the_job_and_is_tried_again_between_jobs(world: Any) -> None:
    world.declare("model", failing_times(1), identity, build="lazy")
    for _ in range(2):
        with world.job() as env, pytest.raises(EnvironmentVariableFailed, match="no weights here"):
            env.model  # noqa: B018
    assert len(world.listener.only("building")) == 1
    world.pass_time(1.0)
    assert world.seen("model") == "built"


@pytest.mark.parametrize("error", [JobTimedOut("late"), KeyboardInterrupt()])
def test_an_interrupt_of_the_job_during_a_lazy_build_is_the_jobs_and_keeps_nothing(
    world: Any, error: BaseException
) -> None:
    closed: list[str] = []
    ends = [error]

    def make() -> Iterator[str]:
        try:
            if ends:
                raise ends.pop()
            yield "built"
        finally:
            closed.append("closed")

    world.declare("model", make, identity, build="lazy")
    with pytest.raises(type(error)), world.job() as env:
        env.model  # noqa: B018
    assert closed == ["closed"]
    assert (world.state("model").state, world.state("model").error) == (State.DECLARED, "")
    assert world.listener.states[-1].state is State.DECLARED
    assert world.listener.only("build ended") == [("model",)]
    assert world.seen("model") == "built"


def test_an_interrupt_reaches_the_job_through_nested_builds(world: Any) -> None:
    ends = [JobTimedOut("late")]

    def make_base() -> str:
        if ends:
            raise ends.pop()
        return "base"

    world.declare("base", make_base, identity, build="lazy")
    world.declare("top", lambda: f"top on {world.env.base}", identity, build="lazy")
    with pytest.raises(JobTimedOut), world.job() as env:
        env.top  # noqa: B018
    assert {state.state for state in world.runtime.states()} == {State.DECLARED}
    assert world.seen("top") == "top on base"


def test_an_eager_value_whose_rebuild_was_interrupted_is_built_between_jobs(world: Any) -> None:
    ends: list[BaseException] = []

    def make() -> str:
        if ends:
            raise ends.pop()
        return "built"

    world.declare("model", make, identity, check=lambda _: not ends)
    ends.append(JobTimedOut("late"))
    with pytest.raises(JobTimedOut), world.job() as env:
        env.model  # noqa: B018
    assert world.state("model").state is State.DECLARED
    assert world.runtime.next_retry == world.clock.now
    world.runtime.retry_due()
    assert world.state("model").state is State.READY


def test_a_very_long_traceback_is_cut_at_its_beginning(world: Any) -> None:
    def make() -> None:
        raise ValueError("x" * 100_000 + " the end")

    world.declare("model", make)
    error = world.state("model").error
    assert len(error) < MAX_TRACEBACK_CHARS + 100
    assert error.endswith("the end")


def test_an_error_that_cannot_be_printed_is_told_all_the_same(world: Any) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    def make() -> None:
        raise Mute

    world.declare("model", make)
    assert "Mute" in world.state("model").error
