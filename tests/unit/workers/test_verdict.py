"""Who is to blame when an executor dies."""

from __future__ import annotations

import signal

import pytest

from envq.workers.slot import Phase, SlotView
from envq.workers.supervision.verdict import Death, Intent, Verdict, judge


def view(phase: Phase, subject: str = "", detail: str = "", inside: str = "") -> SlotView:
    ran = subject if phase in (Phase.RUNNING, Phase.STORING) else inside
    return SlotView(phase, subject, detail, since=0.0, deadline=0.0, jobs=0, ran=ran)


def death(seen: SlotView, code: int = -signal.SIGKILL, intent: Intent | None = None) -> Death:
    return Death("host.1.1.abc", 77, code, seen, intent)


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.STORING])
def test_job_whose_user_code_ran_is_blamed(phase: Phase) -> None:
    verdict = judge(death(view(phase, "j1", "e1"), code=-signal.SIGSEGV))
    assert (verdict.running, verdict.why) == ("j1", "crash")
    assert "SIGSEGV" in verdict.detail
    assert "pid 77" in verdict.detail


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.IDLE, Phase.PREPARING, Phase.STOPPING])
def test_nobody_is_blamed_while_no_user_code_ran(phase: Phase) -> None:
    assert judge(death(view(phase, "j1"))) == Verdict("", "handback", "")


@pytest.mark.parametrize("phase", [Phase.BUILDING, Phase.RESETTING])
def test_the_job_is_blamed_for_what_is_built_or_reset_inside_it(phase: Phase) -> None:
    assert judge(death(view(phase, "cartpole", "1", inside="j1"))).running == "j1"
    assert judge(death(view(phase, "cartpole", "1"))).running == ""


def test_an_id_that_was_cut_is_looked_up_in_redis() -> None:
    assert judge(death(view(Phase.RUNNING, "j" * 300))).running == "?"


def test_timeout_settles_the_job_it_was_meant_for() -> None:
    verdict = judge(death(view(Phase.RUNNING, "j1"), intent=Intent("timeout", "too long", "j1")))
    assert verdict == Verdict("j1", "timeout", "too long")


@pytest.mark.parametrize("why", ["timeout", "stopped"])
def test_kill_that_hit_the_next_job_is_not_counted(why: str) -> None:
    intent = Intent("timeout" if why == "timeout" else "stopped", "", "j1")
    assert judge(death(view(Phase.RUNNING, "j2"), intent=intent)).why == "handback"


def test_stop_inside_a_build_settles_the_job() -> None:
    verdict = judge(death(view(Phase.BUILDING, "cartpole", inside="j1"), intent=Intent("stopped", "", "j1")))
    assert (verdict.running, verdict.why) == ("j1", "stopped")


def test_job_of_a_worker_that_is_stopped_by_force_is_not_counted() -> None:
    verdict = judge(death(view(Phase.RUNNING, "j1"), intent=Intent("cold", "stopped")))
    assert verdict == Verdict("j1", "handback", "stopped")


def test_exit_with_code_0_inside_a_job_is_a_crash() -> None:
    ended = death(view(Phase.RUNNING, "j1"), code=0)
    assert not ended.clean
    assert judge(ended).why == "crash"


def test_kill_from_outside_is_told_from_one_of_ours() -> None:
    assert "out of memory" in death(view(Phase.RUNNING, "j1")).text
    ours = Intent("timeout", "too long", "j1")
    assert "out of memory" not in death(view(Phase.RUNNING, "j1"), intent=ours).text


def test_death_in_a_build_names_the_variable() -> None:
    assert "while it built cartpole version 3" in death(view(Phase.BUILDING, "cartpole", "3")).text


@pytest.mark.parametrize("code", [0, 75, 5, -signal.SIGTERM])
def test_leaving_between_jobs_is_orderly(code: int) -> None:
    assert death(view(Phase.IDLE), code=code).orderly
    assert not death(view(Phase.RUNNING, "j1"), code=code).orderly


def test_middleware_around_a_job_that_has_started_is_not_nobody_s() -> None:
    assert judge(death(view(Phase.PREPARING, "j1", "e1", inside="j1"))).running == "j1"


@pytest.mark.parametrize("why", ["timeout", "crash"])
def test_an_id_that_does_not_fit_the_slot_leaves_it_to_the_record(why: str) -> None:
    seen = view(Phase.RUNNING, "j" * 300, "e1")
    intent = Intent("timeout", "too long", seen.subject) if why == "timeout" else None
    verdict = judge(death(seen, intent=intent))
    assert (verdict.running, verdict.why) == ("?", why)
