"""Time limits: they nest, they insist, and an interruption finds what it names."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from envq.errors import JobStopRequested, JobTimedOut
from envq.runtime import TimeLimit
from envq.runtime.calling import Caller
from envq.workers.execution.deadline import Deadlines, Work
from envq.workers.slot import Interrupt, Phase, Slot

JOB = Work(Phase.RUNNING, "job-1", "execution-1")
BUILD = Work(Phase.BUILDING, "model", "3")


@pytest.fixture
def slot() -> Slot:
    return Slot(multiprocessing.get_context("fork"))


@pytest.fixture
def deadlines(slot: Slot) -> Iterator[Deadlines]:
    made = Deadlines(slot)
    made.install()
    yield made
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_the_error_is_raised_inside_the_block(deadlines: Deadlines) -> None:
    with pytest.raises(JobTimedOut), deadlines.limit(0.05, JOB, JobTimedOut("late")):
        spin(10)


def test_a_block_that_ends_in_time_is_left_alone(deadlines: Deadlines) -> None:
    with deadlines.limit(0.05, JOB, JobTimedOut("late")):
        pass
    spin(0.1)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_code_that_swallows_the_error_gets_it_again(deadlines: Deadlines) -> None:
    swallowed = 0
    with pytest.raises(JobTimedOut), deadlines.limit(0.05, JOB, JobTimedOut("late")):
        while True:
            try:
                spin(10)
            except JobTimedOut:
                swallowed += 1
                if swallowed == 2:
                    raise
    assert swallowed == 2


def test_except_exception_does_not_swallow_it(deadlines: Deadlines) -> None:
    def careless() -> None:
        try:
            spin(10)
        except Exception:  # noqa: BLE001 - what careless code does
            pytest.fail("swallowed")

    with pytest.raises(JobTimedOut), deadlines.limit(0.05, JOB, JobTimedOut("late")):
        careless()


def test_the_outer_clock_stands_still_while_an_inner_limit_runs(deadlines: Deadlines) -> None:
    with deadlines.limit(0.2, JOB, JobTimedOut("late")):
        with deadlines.limit(None, BUILD, TimeLimit("slow")):
            spin(0.4)
        spin(0.02)


def test_the_outer_limit_goes_on_after_the_inner_one(deadlines: Deadlines) -> None:
    with pytest.raises(JobTimedOut), deadlines.limit(0.1, JOB, JobTimedOut("late")):
        with deadlines.limit(5, BUILD, TimeLimit("slow")):
            pass
        spin(10)


def test_an_inner_limit_raises_its_own_error(deadlines: Deadlines) -> None:
    outer, inner = deadlines.limit(5, JOB, JobTimedOut("late")), deadlines.limit(0.05, BUILD, TimeLimit("slow"))
    with outer, pytest.raises(TimeLimit), inner:
        spin(10)


def test_the_slot_shows_the_innermost_limit(deadlines: Deadlines, slot: Slot) -> None:
    with deadlines.limit(60, JOB, JobTimedOut("late")):
        with deadlines.limit(30, BUILD, TimeLimit("slow")):
            inner = slot.read()
        outer = slot.read()
    assert (inner.phase, inner.subject, inner.detail) == (Phase.BUILDING, "model", "3")
    assert 0 < inner.deadline - time.monotonic() <= 30
    assert (outer.phase, outer.job_id, outer.execution_id) == (Phase.RUNNING, "job-1", "execution-1")
    assert 30 < outer.deadline - time.monotonic() <= 60


def test_a_stop_request_ends_the_job_it_names(deadlines: Deadlines, slot: Slot) -> None:
    with pytest.raises(JobStopRequested), deadlines.limit(None, JOB, JobTimedOut("late")):
        slot.ask(Interrupt.STOP_JOB, "job-1")
        os.kill(os.getpid(), signal.SIGUSR1)
        spin(10)


def test_a_stop_request_for_another_job_is_nothing(deadlines: Deadlines, slot: Slot) -> None:
    with deadlines.limit(None, JOB, JobTimedOut("late")):
        slot.ask(Interrupt.STOP_JOB, "job-2")
        os.kill(os.getpid(), signal.SIGUSR1)
        spin(0.02)


def test_a_build_can_be_cancelled_by_its_name_only(deadlines: Deadlines, slot: Slot) -> None:
    with deadlines.limit(None, BUILD, TimeLimit("slow")):
        slot.ask(Interrupt.CANCEL_BUILD, "other")
        os.kill(os.getpid(), signal.SIGUSR1)
        spin(0.02)
    with pytest.raises(TimeLimit, match="cancelled"), deadlines.limit(None, BUILD, TimeLimit("slow")):
        slot.ask(Interrupt.CANCEL_BUILD, "model")
        os.kill(os.getpid(), signal.SIGUSR1)
        spin(10)


def test_a_request_between_jobs_is_nothing(deadlines: Deadlines, slot: Slot) -> None:
    slot.ask(Interrupt.STOP_JOB, "job-1")
    os.kill(os.getpid(), signal.SIGUSR1)
    spin(0.01)
    assert deadlines.depth == 0


def test_thousands_of_limits_that_expire_at_their_end_leave_the_stack_whole(deadlines: Deadlines) -> None:
    ends = 0
    for _ in range(3000):
        try:
            with deadlines.limit(0.00001, JOB, JobTimedOut("late")), deadlines.limit(5, BUILD, TimeLimit("slow")):
                pass
        except JobTimedOut:
            ends += 1
        assert deadlines.depth == 0
    signal.raise_signal(signal.SIGALRM)  # the timer is left running; when it finds nothing in force it ends
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_what_went_on_outside_goes_on_afterwards(deadlines: Deadlines, slot: Slot) -> None:
    slot.write(Phase.PREPARING, "job-1", "execution-1")
    with deadlines.limit(1, BUILD, TimeLimit("late")):
        assert slot.read().phase is Phase.BUILDING
    view = slot.read()
    assert (view.phase, view.subject, view.detail) == (Phase.PREPARING, "job-1", "execution-1")


def test_an_error_never_leaves_from_our_own_bookkeeping(deadlines: Deadlines, slot: Slot) -> None:
    runtime_code = "def work():\n while next(turns): pass\n return 'whole'"
    inside: dict[str, Any] = {"__name__": "envq.runtime.table", "turns": iter([1] * 200_000 + [0])}
    exec(runtime_code, inside)
    ended = ""
    with contextlib.suppress(JobTimedOut), deadlines.limit(0.001, JOB, JobTimedOut("late")):
        ended = inside["work"]()
        spin(10)
    assert ended == "whole"
    assert slot.read().phase is Phase.STORING


def test_user_code_that_our_bookkeeping_calls_is_interrupted(deadlines: Deadlines) -> None:
    caller = Caller(lambda coroutine: None)
    with pytest.raises(JobTimedOut), deadlines.limit(0.01, JOB, JobTimedOut("late")):
        caller.call(spin, 10)


def test_what_an_error_may_have_torn_is_dropped_when_its_block_is_left(deadlines: Deadlines) -> None:
    dropped = list[str]()
    deadlines.after_strike = lambda: dropped.append("connections")
    with deadlines.limit(60, JOB, JobTimedOut("late")):
        with contextlib.suppress(TimeLimit), deadlines.limit(0.01, BUILD, TimeLimit("slow")):
            spin(10)
        assert dropped == ["connections"]
    assert dropped == ["connections"]
