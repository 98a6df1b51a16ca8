"""Tests of code that uses envq, without a server: run them with `pytest examples/tested.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import envq
from envq.testing import Inline


@envq.task
def sell(number: int) -> int:
    """Sell so many, and say what is left."""
    shop = envq.env.shop
    if number > shop["stock"]:
        raise ValueError("sold out")
    shop["stock"] -= number
    return shop["stock"]


@pytest.fixture(autouse=True)
def inline() -> Iterator[Inline]:
    with envq.testing.inline() as inside:
        envq.env.shop = envq.EnvironmentVariable(lambda: {"stock": 3})
        yield inside


def test_every_job_starts_with_a_full_shop() -> None:
    assert envq.get([sell.enqueue(1), sell.enqueue(2)]) == [2, 1]


def test_a_job_that_fails_says_why() -> None:
    with pytest.raises(envq.JobFailed, match="sold out"):
        envq.get(sell.enqueue(4))


def test_what_is_enqueued_for_later_runs_when_asked(inline: Inline) -> None:
    job = sell.enqueue_in(3600, 1)
    assert inline.run_scheduled() == [job]
    assert envq.get(job) == 2
