"""When something has run too long, and what an order is about."""

from __future__ import annotations

from typing import Any

import pytest

from envq.workers.slot import Interrupt, Phase, SlotView
from envq.workers.supervision.enforcement import Enforcement, Order, overdue


def view(phase: Phase, subject: str = "j1", deadline: float = 0.0) -> SlotView:
    return SlotView(phase, subject, "", since=10.0, deadline=deadline, jobs=0)


def test_nothing_is_killed_without_a_deadline_or_within_the_grace() -> None:
    assert overdue(view(Phase.RUNNING), 1e9, 5.0) is None
    assert overdue(view(Phase.RUNNING, deadline=20.0), 24.9, 5.0) is None


def test_job_past_its_limit_and_the_grace_is_killed_for_its_timeout() -> None:
    intent = overdue(view(Phase.RUNNING, deadline=20.0), 25.0, 5.0)
    assert intent is not None
    assert (intent.why, intent.job_id) == ("timeout", "j1")
    assert "its limit of 10 s" in intent.detail


@pytest.mark.parametrize("phase", [Phase.BUILDING, Phase.RESETTING])
def test_hung_build_or_reset_is_no_timeout_of_a_job(phase: Phase) -> None:
    intent = overdue(view(phase, "cartpole", deadline=20.0), 25.0, 5.0)
    assert intent is not None
    assert (intent.why, intent.job_id) == ("build", "")
    assert "cartpole" in intent.detail


@pytest.mark.parametrize(
    ("phase", "subject", "inside", "concerned"),
    [
        (Phase.RUNNING, "j1", False, True),
        (Phase.PREPARING, "j1", False, True),
        (Phase.RUNNING, "j2", True, False),
        (Phase.STORING, "j1", False, False),
        (Phase.BUILDING, "cartpole", False, False),
        (Phase.BUILDING, "cartpole", True, True),
        (Phase.IDLE, "", True, False),
    ],
)
def test_stop_concerns_only_the_job_it_names(phase: Phase, subject: str, inside: bool, concerned: bool) -> None:
    order = Order(Interrupt.STOP_JOB, "j1", 1.0, inside)
    assert order.concerns(view(phase, subject)) is concerned


def test_cancelling_concerns_only_the_build_of_that_variable() -> None:
    order = Order(Interrupt.CANCEL_BUILD, "cartpole", 1.0)
    assert order.concerns(view(Phase.BUILDING, "cartpole"))
    assert not order.concerns(view(Phase.BUILDING, "model"))
    assert not order.concerns(view(Phase.RUNNING, "cartpole"))


class Executor:
    """What enforcement knows of one."""

    def __init__(self, seen: SlotView) -> None:
        self.name, self.pid, self.condemned, self.view = "host.1.1.abc", 1, False, seen
        self.asked: list[tuple[Interrupt, str]] = []

    def interrupt(self, kind: Interrupt, target: str) -> None:
        self.asked.append((kind, target))


@pytest.mark.parametrize("before", [view(Phase.RUNNING, "j0"), view(Phase.IDLE, "")])
def test_a_stop_for_a_job_that_has_not_begun_is_given_once_it_runs(before: SlotView) -> None:
    executor: Any = Executor(before)
    enforcement = Enforcement(kill_grace_s=5.0)
    enforcement.stop_job(executor, "j1")
    enforcement.enforce([executor])
    assert executor.asked == []
    assert enforcement.waiting
    executor.view = view(Phase.RUNNING, "j1")
    enforcement.enforce([executor])
    assert executor.asked == [(Interrupt.STOP_JOB, "j1")]


def test_a_stop_for_a_job_that_does_not_begin_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    executor: Any = Executor(view(Phase.RUNNING, "j0"))
    enforcement = Enforcement(kill_grace_s=5.0)
    enforcement.stop_job(executor, "j1")
    monkeypatch.setattr("envq.workers.supervision.enforcement.time.monotonic", lambda: 1e12)
    enforcement.enforce([executor])
    assert not enforcement.waiting
    assert "is not working on job j1" in caplog.text
