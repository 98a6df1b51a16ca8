"""The job's timeout, armed for user code only; a build inside the job stops its clock."""

from __future__ import annotations

from typing import Any

from envq.errors import JobTimedOut
from envq.workers.execution.context import CallNext, JobContext
from envq.workers.execution.deadline import Work
from envq.workers.slot import Phase


def time_limit(context: JobContext, call_next: CallNext) -> Any:
    """Raise JobTimedOut inside the job; the supervisor kills what does not yield within the grace."""
    seconds = context.time_limit
    work = Work(Phase.RUNNING, context.job_id, context.execution_id)
    with context.services.deadlines.limit(seconds, work, lambda: _too_long("job", seconds)):
        return call_next(context)


def middleware_limit(context: JobContext, call_next: CallNext) -> Any:
    """The user's own middleware may take as long as the job, by a clock that stands still while the job runs."""
    seconds = context.time_limit
    work = Work(Phase.RUNNING, context.job_id, context.execution_id)
    with context.services.deadlines.limit(seconds, work, lambda: _too_long("middleware around the job", seconds)):
        return call_next(context)


def _too_long(what: str, seconds: float | None) -> JobTimedOut:
    return JobTimedOut(f"{what} exceeded its timeout of {seconds or 0:g} s")
