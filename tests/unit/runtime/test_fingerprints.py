"""With a fingerprint given, a value that is not as it was built is told with the job that did it (C19)."""

from __future__ import annotations

from typing import Any

import pytest


def identity(value: Any) -> Any:
    return value


def boom(*_: Any) -> Any:
    raise ValueError("boom")


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
    assert world.listener.only("dirty") == [("numbers", "dirty job")]
    assert "numbers" in caplog.text
    assert "dirty job" in caplog.text


def test_only_a_job_that_changed_something_is_blamed(make_world: Any) -> None:
    world = make_world(fingerprint=repr)
    world.declare("numbers", list, identity)
    for job, change in [("one", [1]), ("two", []), ("three", [3])]:
        with world.job(job) as env:
            env.numbers.extend(change)
    assert world.listener.only("dirty") == [("numbers", "one"), ("numbers", "three")]


def test_a_good_reset_and_a_rebuild_are_not_told(make_world: Any) -> None:
    world = make_world(fingerprint=repr)
    world.declare("cleared", list, lambda numbers: numbers.clear() or numbers)
    world.declare("rebuilt", list)
    with world.job() as env:
        env.cleared.append(1)
        env.rebuilt.append(1)
    assert world.listener.only("dirty") == []


def test_fingerprints_that_cannot_be_made_are_passed_over(make_world: Any) -> None:
    for fingerprint in (boom, lambda value: None):
        world = make_world(fingerprint=fingerprint)
        world.declare("numbers", list, identity)
        with world.job() as env:
            env.numbers.append(1)
        assert world.seen("numbers") == [1]
        assert world.listener.only("dirty") == []


def test_without_one_nothing_is_compared(world: Any) -> None:
    world.declare("numbers", list, identity)
    with world.job() as env:
        env.numbers.append(1)
    assert world.listener.only("dirty") == []
