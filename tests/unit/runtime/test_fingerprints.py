"""With a fingerprint given, a value that is not as it was built is told with the job that did it (C19)."""

from __future__ import annotations

from typing import Any

import pytest

from envq.runtime import TimeLimit


def identity(value: Any) -> Any:
    return value


def test_a_value_that_differs_after_its_reset_is_told_with_name_and_job(
    make_world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(fingerprint=repr)
    world.declare("numbers", list, identity)
    with world.job("clean job"):
        pass
    with world.job("reading job") as env:
        assert env.numbers == []
    with world.job("dirty job") as env:
        env.numbers.append(1)
    assert world.listener.only("dirty") == [("numbers", "dirty job", "")]
    assert "numbers" in caplog.text
    assert "dirty job" in caplog.text


def test_only_a_job_that_changed_something_is_blamed(make_world: Any) -> None:
    world = make_world(fingerprint=repr)
    world.declare("numbers", list, identity)
    for job, change in [("one", [1]), ("two", []), ("three", [3])]:
        with world.job(job) as env:
            env.numbers.extend(change)
    assert world.listener.only("dirty") == [("numbers", "one", ""), ("numbers", "three", "")]


def test_a_good_reset_and_a_rebuild_are_not_told(make_world: Any) -> None:
    world = make_world(fingerprint=repr)
    world.declare("cleared", list, lambda numbers: numbers.clear() or numbers)
    world.declare("rebuilt", list)
    with world.job() as env:
        env.cleared.append(1)
        env.rebuilt.append(1)
    assert world.listener.only("dirty") == []


@pytest.mark.parametrize("trouble", [ValueError("no content"), TimeLimit("too long"), SystemExit(3)])
def test_what_cannot_be_read_is_said_once_and_changes_nothing(
    make_world: Any, caplog: pytest.LogCaptureFixture, trouble: BaseException
) -> None:
    def refuse(value: object) -> str:
        raise trouble

    world = make_world(fingerprint=refuse)
    world.declare("numbers", list, identity)
    for _ in range(3):
        with world.job() as env:
            env.numbers.append(1)
    world.rebuild("numbers")
    assert world.seen("numbers") == []
    assert world.listener.only("dirty") == []
    told = [record for record in caplog.records if "cannot be compared" in record.getMessage()]
    assert len(told) == 2, "once for each epoch"
    assert "numbers" in caplog.text


def test_a_function_that_leaves_it_dirty_is_told_once_and_counted_always(make_world: Any) -> None:
    world = make_world(fingerprint=repr)
    world.declare("numbers", list, identity)
    for number in range(3):
        for function in ("one", "two"):
            with world.job(f"{function} {number}", function) as env:
                env.numbers.append(number)
    assert world.listener.only("dirty") == [("numbers", "one 0", "one"), ("numbers", "two 0", "two")]
    assert world.state("numbers").dirty == 6


def test_comparing_is_bounded_by_the_time_that_a_reset_may_take(make_world: Any) -> None:
    world = make_world(fingerprint=repr)
    world.declare("numbers", list, identity, reset_timeout=7.0)
    world.seen("numbers")
    assert world.limits.asked.count((7.0, "comparing 'numbers'")) == 2, "after the build, and after the reset"


def test_what_a_value_reads_while_it_is_compared_is_not_used_by_it(make_world: Any) -> None:
    world = make_world(fingerprint=lambda value: repr(world.env.other) if value == "numbers" else "")
    world.declare("other", lambda: "other", identity)
    world.declare("numbers", lambda: "numbers", identity)
    assert world.seen("numbers") == "numbers"
    assert world.state("other").uses == 0


def test_without_one_nothing_is_compared(world: Any) -> None:
    world.declare("numbers", list, identity)
    with world.job() as env:
        env.numbers.append(1)
    assert world.listener.only("dirty") == []
