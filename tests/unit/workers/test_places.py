"""Which executor follows which, and how jobs are shared out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from envq.settings import Settings
from envq.workers.config import EXIT_RECYCLE, WorkerConfig
from envq.workers.slot import Phase, SlotView
from envq.workers.supervision.places import HEALTHY_AFTER_S, JobBudget, Place, jobs_used
from envq.workers.supervision.verdict import Death

CONFIG = WorkerConfig(Settings())


def death(code: int, phase: Phase = Phase.STOPPING, jobs: int = 0) -> Death:
    job = "j" if phase is Phase.RUNNING else ""
    return Death("e", 1, code, SlotView(phase, job, "", 0.0, 0.0, jobs, ran=job))


@pytest.mark.parametrize(("total", "executors"), [(10, 3), (2, 3), (3, 3), (1, 1)])
def test_first_shares_are_even_and_add_up(total: int, executors: int) -> None:
    budget = JobBudget(total, executors)
    shares = [budget.first_share(number) or 0 for number in range(executors)]
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1


def test_place_without_a_job_left_for_it_stays_empty() -> None:
    budget = JobBudget(1, 2)
    places = [Place(0), Place(1)]
    assert [place.fill(budget) for place in places] == [True, False]
    assert [place.retired for place in places] == [False, True]


def test_what_an_executor_did_not_use_goes_to_the_next() -> None:
    budget = JobBudget(10, 1)
    place = Place(0)
    place.fill(budget)
    budget.give_back(place.share, jobs_used(death(9, jobs=3)))
    place.fill(budget)
    assert place.share == 7


def test_job_that_was_cut_off_counts() -> None:
    assert jobs_used(death(-9, Phase.RUNNING, jobs=3)) == 4


def test_no_limit_is_no_limit() -> None:
    budget = JobBudget(None, 1)
    place = Place(0)
    assert place.fill(budget)
    assert place.share is None


def test_delays_grow_while_executors_die_young_and_end_after_a_healthy_one() -> None:
    place, delays = Place(0), list[float]()
    for _ in range(12):
        place.vacate(death(9), 0.1, 100.0, asked=False, config=CONFIG)
        delays.append(place.due_at - 100.0)
    assert delays[:3] == pytest.approx([0.1, 0.2, 0.4])
    assert delays[-1] == 30.0
    place.vacate(death(9), HEALTHY_AFTER_S + 1, 100.0, asked=False, config=CONFIG)
    assert place.due_at == 100.0
    place.vacate(death(9), 0.1, 100.0, asked=False, config=CONFIG)
    assert place.due_at == pytest.approx(100.1)


@pytest.mark.parametrize("asked", [False, True])
def test_recycling_is_never_delayed(asked: bool) -> None:
    place = Place(0)
    place.vacate(death(EXIT_RECYCLE), 0.1, 100.0, asked=asked, config=CONFIG)
    assert (place.due_at, place.retired) == (100.0, False)


@pytest.mark.parametrize("config", [replace(CONFIG, burst=True), replace(CONFIG, max_idle_s=1.0)])
def test_executor_that_is_done_is_not_replaced_but_a_dead_one_is(config: WorkerConfig) -> None:
    done, died, in_a_job = Place(0), Place(1), Place(2)
    done.vacate(death(0), 0.1, 0.0, asked=False, config=config)
    died.vacate(death(1), 0.1, 0.0, asked=False, config=config)
    in_a_job.vacate(death(0, Phase.RUNNING), 0.1, 0.0, asked=False, config=config)
    assert [done.retired, died.retired, in_a_job.retired] == [True, False, False]


def test_executor_that_exits_unasked_is_replaced() -> None:
    place = Place(0)
    place.vacate(death(0), 100.0, 5.0, asked=False, config=CONFIG)
    assert (place.due_at, place.retired) == (5.0, False)
