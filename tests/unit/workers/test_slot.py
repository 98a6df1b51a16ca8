"""The slot: what one process writes the other reads whole."""

from __future__ import annotations

import multiprocessing

import pytest
from support.reading import read_some

from envq.workers.slot import Interrupt, Phase, Slot


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_record_written_in_another_process_is_read_here(method: str) -> None:
    context = multiprocessing.get_context(method)
    slot = Slot(context)
    slot.end_job()
    process = context.Process(target=slot.write, args=(Phase.RUNNING, "job", "execution", 12.5))
    process.start()
    process.join()
    view = slot.read()
    assert (view.phase, view.job_id, view.execution_id, view.deadline, view.jobs) == (
        Phase.RUNNING,
        "job",
        "execution",
        12.5,
        1,
    )


def test_a_reader_never_sees_half_a_record() -> None:
    context = multiprocessing.get_context("fork")
    slot = Slot(context)
    slot.write(Phase.RUNNING, "0" * 200, "0" * 200)
    process = context.Process(target=_write_many, args=(slot,))
    process.start()
    torn = 0
    while process.is_alive():
        view = slot.read()
        torn += len({*view.subject, *view.detail}) != 1
    process.join()
    assert torn == 0


def _write_many(slot: Slot) -> None:
    for number in range(20_000):
        slot.write(Phase.RUNNING, str(number % 10) * 200, str(number % 10) * 200)


def test_only_a_job_that_ran_counts_as_running() -> None:
    slot = Slot(multiprocessing.get_context("fork"))
    slot.write(Phase.PREPARING, "job")
    assert slot.read().job_id == ""
    slot.write(Phase.STORING, "job", "execution")
    assert slot.read().job_id == "job"


def test_a_job_that_builds_a_variable_is_still_what_ran() -> None:
    slot = Slot(multiprocessing.get_context("fork"))
    slot.write(Phase.PREPARING, "job")
    assert slot.read().ran == ""
    slot.write(Phase.PREPARING, "job", "execution")
    slot.write(Phase.BUILDING, "model", "1")
    view = slot.read()
    assert (view.phase, view.subject, view.ran) == (Phase.BUILDING, "model", "job")
    slot.end_job()
    slot.write(Phase.RESETTING, "model")
    assert slot.read().ran == ""


def test_texts_that_are_too_long_are_cut() -> None:
    slot = Slot(multiprocessing.get_context("fork"))
    slot.write(Phase.BUILDING, "n" * 1000)
    assert slot.read().subject == "n" * 300


def test_a_request_reaches_the_executor() -> None:
    slot = Slot(multiprocessing.get_context("fork"))
    assert slot.asked() == (Interrupt.NOTHING, "")
    slot.ask(Interrupt.CANCEL_BUILD, "model")
    assert slot.asked() == (Interrupt.CANCEL_BUILD, "model")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_the_job_that_runs_has_read_is_seen_from_outside(method: str) -> None:
    context = multiprocessing.get_context(method)
    slot = Slot(context)
    process = context.Process(target=read_some, args=(slot,))
    process.start()
    process.join()
    assert slot.variables_read(slot.read()) == ("cartpole", "model")


def test_what_an_earlier_job_read_is_not_taken_for_read_by_this_one() -> None:
    slot = Slot(multiprocessing.get_context("fork"))
    slot.write(Phase.RUNNING, "first", "e1")
    slot.note_read("model")
    slot.end_job()
    slot.write(Phase.RUNNING, "second", "e2")
    assert slot.variables_read(slot.read()) == ()


def test_more_names_than_there_is_room_for_do_no_harm() -> None:
    slot = Slot(multiprocessing.get_context("fork"))
    slot.write(Phase.RUNNING, "job", "execution")
    for number in range(100):
        slot.note_read(f"{number}" * 100)
    read = slot.variables_read(slot.read())
    assert len(read) == 40
    assert slot.read().job_id == "job"
