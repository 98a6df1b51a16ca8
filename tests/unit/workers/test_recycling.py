"""When an executor asks to be replaced, when it leaves unasked, and what counts as growth."""

from __future__ import annotations

import pytest

from envq.settings import Settings
from envq.workers.config import WorkerConfig
from envq.workers.execution.memory import Memory
from envq.workers.execution.recycling import LOOK_S, Recycling
from envq.workers.slot import Phase, SlotView
from envq.workers.supervision.verdict import Death


class Process:
    """Holds as much as it is told to, at the time that it is told."""

    def __init__(self, *, beside: bool = True, **limits: int) -> None:
        self.holds_mib = 100.0
        self.now = 0.0
        self.looks = 0
        self.asked = 0
        self.beside = beside
        self.memory = Memory(self.resident)
        self.recycling = Recycling(WorkerConfig(Settings(), **limits), self.memory, self.ask, lambda: self.now)

    def resident(self) -> float:
        self.looks += 1
        return self.holds_mib

    def ask(self) -> bool:
        self.asked += 1
        return self.beside

    def leaves_after(self, jobs: int, *, more: bool = False) -> bool:
        return self.recycling.must_leave(jobs, more=more)


def test_it_asks_once_at_its_limit_of_jobs_and_leaves_at_twice_as_many() -> None:
    process = Process(max_jobs_per_child=3)
    assert [process.leaves_after(jobs) for jobs in range(1, 7)] == [False] * 5 + [True]
    assert process.asked == 1


def test_it_never_claims_more_than_it_may_run() -> None:
    process = Process(max_jobs_per_child=3)
    assert [process.recycling.jobs_left(jobs) for jobs in (0, 5, 6, 7)] == [6, 1, 0, 0]
    assert Process(max_memory_per_child_mib=1).recycling.jobs_left(10**6) is None


def test_it_leaves_at_its_limit_where_there_must_not_be_two() -> None:
    process = Process(beside=False, max_jobs_per_child=3)
    assert [process.leaves_after(jobs) for jobs in range(1, 4)] == [False, False, True]


def test_growth_and_not_size_is_limited() -> None:
    process = Process(max_memory_per_child_mib=50)
    process.holds_mib = 150.0
    assert not process.leaves_after(1)
    assert process.asked == 0
    process.holds_mib = 151.0
    assert not process.leaves_after(2)
    assert process.asked == 1
    process.holds_mib = 201.0
    assert process.leaves_after(3)


def test_memory_is_read_now_and_then_inside_a_batch_and_always_after_its_last_job() -> None:
    process = Process(max_memory_per_child_mib=50)
    process.leaves_after(1)
    looks = process.looks
    process.leaves_after(2, more=True)
    assert process.looks == looks
    process.leaves_after(3)
    assert process.looks == looks + 1
    process.now += LOOK_S
    process.leaves_after(4, more=True)
    assert process.looks == looks + 2


def test_what_is_built_later_is_no_growth_and_what_leaked_before_it_still_is() -> None:
    process = Process()
    process.holds_mib += 7.0
    with process.memory.built(), process.memory.built():
        process.holds_mib += 500.0
    assert process.memory.grown_mib == pytest.approx(7.0)
    assert process.memory.baseline_mib == pytest.approx(600.0)


@pytest.mark.parametrize("beside", [False, True])
def test_a_build_is_not_blamed_for_a_death_beside_another_executor(beside: bool) -> None:
    view = SlotView(Phase.BUILDING, "model", "3 abc 0", 0.0, 0.0, 0)
    build = Death("e", 1, -9, view, beside=beside).build
    assert build is not None
    assert build.blamed is not beside
