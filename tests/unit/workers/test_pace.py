"""How many jobs are claimed together."""

from __future__ import annotations

import pytest

from envq.store.exchange import BATCH
from envq.workers.execution.pace import SHORT_S, Pace

TINY_S = SHORT_S / 1000


def grown() -> Pace:
    pace = Pace()
    while pace.wanted < BATCH:
        pace.took(pace.wanted, TINY_S)
    return pace


def test_it_begins_with_one_job_and_doubles_while_batches_are_full_and_short() -> None:
    pace, wanted = Pace(), list[int]()
    for _ in range(9):
        wanted.append(pace.wanted)
        pace.took(pace.wanted, TINY_S)
    assert wanted == [1, 2, 4, 8, 16, 32, 64, 64, 64]


def test_a_batch_that_was_not_full_tells_nothing() -> None:
    pace = Pace()
    pace.took(1, TINY_S)
    pace.took(1, TINY_S)
    assert pace.wanted == 2


def test_one_long_job_brings_it_to_one_at_once() -> None:
    pace = grown()
    pace.took(1, 10.0)
    assert pace.wanted == 1


def test_it_shrinks_to_what_fits() -> None:
    pace = grown()
    pace.took(64, 4 * SHORT_S)
    assert pace.wanted == 16


@pytest.mark.parametrize("jobs", [0, 1])
def test_a_batch_that_was_taken_away_leaves_at_least_one(jobs: int) -> None:
    pace = grown()
    pace.took(jobs, 1.0)
    assert pace.wanted == 1


def test_where_there_are_no_batches_it_stays_at_one() -> None:
    pace = Pace(most=1)
    pace.took(1, TINY_S)
    assert pace.wanted == 1
