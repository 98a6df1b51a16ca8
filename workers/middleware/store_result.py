"""The outcome of a job, stored in RQ's terms. Nothing a job raises goes further out than this."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final

from envq.clock import utc_now
from envq.code.serializer import serializer
from envq.errors import JobStopRequested, JobTimedOut
from envq.workers.execution.context import CallNext, JobContext
from envq.workers.execution.deadline import Work
from envq.workers.execution.rq_path import ExcInfo
from envq.workers.slot import Phase

_OURS: Final = ("envq.", "rq.")
_CLOCK: Final = Work.__module__


def store_result(context: JobContext, call_next: CallNext) -> Any:
    """Store what the job returned or raised; a result that cannot be pickled fails the job."""
    try:
        value = call_next(context)
        _ended(context)
        _prepare(context, value)
        context.services.rq.success_callback(context.job, value)
    except BaseException as error:  # noqa: BLE001 - whatever user code raises is the job's outcome
        _ended(context)
        context.error = error
        _store_failure(context, (type(error), error, _users_part(error.__traceback__)))
    else:
        _store_success(context, value)


def _ended(context: JobContext) -> None:
    context.job.ended_at = utc_now()
    context.services.slot.write(Phase.STORING, context.job.id, context.execution.id)


def _prepare(context: JobContext, value: Any) -> None:
    """Pickle the result: the user's ``__reduce__`` runs here, and may hang as any code of theirs."""
    job = context.job
    error = JobTimedOut(f"the result could not be pickled within {job.time_limit or 0:g} s")
    work = Work(Phase.STORING, job.id, context.execution.id)
    with context.services.deadlines.limit(job.time_limit, work, error):
        serializer.prepare(value, job.title)


def _store_success(context: JobContext, value: Any) -> None:
    job, rq = context.job, context.services.rq
    context.status = context.services.storing.store(job, lambda: rq.success(job, context.execution, value))
    if context.status == "finished":
        job.send_webhooks(job.get_status(refresh=False))


def _store_failure(context: JobContext, error: ExcInfo) -> None:
    job, rq = context.job, context.services.rq
    stopped = isinstance(error[1], JobStopRequested)
    error = rq.failure_callback(job, error, stopped=stopped)
    context.status = context.services.storing.store(
        job, lambda: rq.failure(job, context.execution, error, stopped=stopped)
    )


def _users_part(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback from the user's first frame on, without the alarm's own; None where it never got there."""
    while traceback is not None and _module(traceback).startswith(_OURS):
        traceback = traceback.tb_next
    frame = traceback
    while frame is not None:
        if frame.tb_next is not None and _module(frame.tb_next) == _CLOCK:
            frame.tb_next = None
        frame = frame.tb_next
    return traceback


def _module(traceback: TracebackType) -> str:
    return traceback.tb_frame.f_globals.get("__name__", "")
