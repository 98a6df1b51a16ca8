"""Whom a supervisor relieves: those that sit in one job while others wait behind it, and nobody else."""

from __future__ import annotations

import math
import multiprocessing
from typing import Any, cast

import pytest

from envq.store.keys import Keys
from envq.workers.ledger import Ledger
from envq.workers.slot import Phase, Slot
from envq.workers.supervision import relief as relief_module
from envq.workers.supervision.executor_process import ExecutorProcess
from envq.workers.supervision.relief import Relief


class Watched:
    """What a supervisor sees of an executor."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("fork")
        self.name = "host.1.1.abc"
        self.slot, self.ledger = Slot(context), Ledger(context)
        self.batch_at = -math.inf

    @property
    def view(self) -> Any:
        return self.slot.read()


@pytest.fixture
def executor() -> Watched:
    made = Watched()
    made.ledger.begin(1, 3)
    made.slot.write(Phase.PREPARING, "job", "execution")
    made.slot.write(Phase.RUNNING, "job", "execution")
    return made


@pytest.fixture
def relief(monkeypatch: pytest.MonkeyPatch) -> Relief:
    monkeypatch.setattr(relief_module, "PATIENCE_S", 0.0)
    return Relief(Keys())


def look(relief: Relief, executor: Watched) -> bool:
    return bool(relief.look(cast("list[ExecutorProcess]", [executor])))


def test_an_executor_that_has_not_gone_on_between_two_looks_is_stuck(relief: Relief, executor: Watched) -> None:
    assert not look(relief, executor)
    assert look(relief, executor)


def test_a_patient_look_takes_nobody_for_stuck_at_once(executor: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relief_module, "PATIENCE_S", math.inf)
    relief = Relief(Keys())
    assert not any(look(relief, executor) for _ in range(5))


def test_one_that_goes_on_is_not(relief: Relief, executor: Watched) -> None:
    for number in range(5):
        assert not look(relief, executor)
        executor.slot.end_job()
        executor.slot.write(Phase.RUNNING, f"job {number}", "execution")


def test_nor_one_that_makes_round_trips(relief: Relief, executor: Watched) -> None:
    for trip in range(2, 7):
        assert not look(relief, executor)
        executor.ledger.begin(trip, 3)


def test_a_build_inside_a_job_is_part_of_it(relief: Relief, executor: Watched) -> None:
    assert not look(relief, executor)
    executor.slot.write(Phase.BUILDING, "variable", "1")
    assert look(relief, executor)


def test_a_long_reset_between_jobs_is_relieved_as_well(relief: Relief, executor: Watched) -> None:
    executor.slot.end_job()
    executor.slot.write(Phase.RESETTING, "variable", "1")
    assert not look(relief, executor)
    assert look(relief, executor)


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.STARTING, Phase.STOPPING])
def test_who_is_at_no_job_is_left_alone(relief: Relief, executor: Watched, phase: Phase) -> None:
    executor.slot.end_job()
    executor.slot.write(phase)
    assert not any(look(relief, executor) for _ in range(3))


def test_who_holds_nothing_else_is_left_alone(relief: Relief, executor: Watched) -> None:
    executor.ledger.begin(2, 1)
    assert not any(look(relief, executor) for _ in range(3))
    executor.ledger.note(b"an end")
    assert not look(relief, executor)
    assert look(relief, executor), "an end that is not stored waits as well"


def test_a_job_whose_id_the_slot_cannot_hold_is_not_mistaken_for_one_that_waits(
    relief: Relief, executor: Watched
) -> None:
    executor.slot.write(Phase.RUNNING, "x" * 400, "execution")
    assert not any(look(relief, executor) for _ in range(3))


def test_a_job_that_did_not_begin_here_is_not_what_ran() -> None:
    slot = Slot(multiprocessing.get_context("fork"))
    slot.write(Phase.PREPARING, "job", "execution")
    assert slot.read().ran == "job"
    slot.leave_job()
    view = slot.read()
    assert (view.ran, view.jobs, view.phase) == ("", 0, Phase.IDLE)
