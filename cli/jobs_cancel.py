"""``envq jobs cancel``."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Final

from envq.cli.target import Target, opened
from envq.jobs.cancelling import Found, cancel
from envq.store import keys as rq

POLL_S: Final = 0.05
ASK_AGAIN_S: Final = 2.0  # a worker keeps a stop for so long for a job that has not begun


def cancel_all(
    ids: Sequence[str], url: str | None, namespace: str | None, *, enqueue_dependents: bool, patience_s: float
) -> int:
    """Cancel each; then wait at most so long (0: not at all) for those that run. 0, or 1 if one could not be."""
    wanted = list(dict.fromkeys(ids))
    with opened(url, namespace) as target:
        found = {job_id: _cancel(target, job_id, enqueue_dependents) for job_id in wanted}
        done = [_report(job_id, each) for job_id, each in found.items() if each.standing != "running"]
        running = {job_id: each for job_id, each in found.items() if each.standing == "running"}
        if not patience_s:
            done += [_report_asked(job_id, each) for job_id, each in running.items()]
        else:
            deadline = time.monotonic() + patience_s
            done += [_await(target, job_id, deadline, enqueue_dependents) for job_id in running]
    return 0 if all(done) else 1


def _cancel(target: Target, job_id: str, enqueue_dependents: bool) -> Found:
    return cancel(target.connection, job_id, enqueue_dependents=enqueue_dependents)


def _await(target: Target, job_id: str, deadline: float, enqueue_dependents: bool) -> bool:
    """Until the record says that it has ended; a job that goes back to its queue meanwhile is cancelled there."""
    found, asked_at = Found("running"), 0.0
    while time.monotonic() < deadline:
        status = target.connection.hget(rq.job(job_id), "status")
        if status != b"started" or time.monotonic() - asked_at > ASK_AGAIN_S:
            found, asked_at = _cancel(target, job_id, enqueue_dependents), time.monotonic()
        if found.standing != "running":
            return _report(job_id, found, was_running=True)
        time.sleep(POLL_S)
    return _complain(f"job {job_id} has not stopped; it runs on executor {found.executor}")


def _report(job_id: str, found: Found, *, was_running: bool = False) -> bool:
    """Say how it stands; whether that is what was asked for."""
    match found.standing:
        case "waiting":
            print(f"job {job_id} cancelled, it was {found.status.replace('_', ' ')}")
            return True
        case "unknown" if was_running:
            print(f"job {job_id} ended; its record is gone")
            return True
        case "unknown":
            return _complain(f"there is no job {job_id}")
        case _ if was_running and found.status in ("stopped", "canceled"):
            print(f"job {job_id} stopped")
            return True
        case _ if was_running:
            return _complain(f"job {job_id} {found.status} before it could be stopped")
        case _:
            return _complain(f"job {job_id} has ended already: {found.status}")


def _report_asked(job_id: str, found: Found) -> bool:
    if not found.heard:
        return _complain(f"job {job_id} runs on executor {found.executor}, whose worker does not listen")
    print(f"executor {found.executor} is told to stop job {job_id}")
    return True


def _complain(text: str) -> bool:
    print(f"envq: {text}", file=sys.stderr)
    return False
