"""The outcome of a job, stored in RQ's terms. Nothing a job raises goes further out than this."""

from __future__ import annotations

import time
from binascii import b2a_base64
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, NamedTuple

from rq.job import Retry

from envq.code.serializer import serializer
from envq.code.signing import job_keys
from envq.errors import JobStopRequested, JobTimedOut
from envq.jobs.signed import success_signature
from envq.store.exchange import Success
from envq.workers.execution.context import CallNext, JobContext
from envq.workers.execution.deadline import Work
from envq.workers.execution.rq_path import ExcInfo
from envq.workers.slot import Phase

_OURS: Final = ("envq.", "rq.")
_CLOCK: Final = Work.__module__
_MARKS: Final = frozenset({b"envq_crashes", b"envq_alone", b"ttl"})  # those whose end has more to tidy up
_DEPENDS: Final = frozenset({b"dependency_ids", b"dependency_id"})
_PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes})  # pickling them runs no code of users


class Conclusion(NamedTuple):
    """
    How the user's code of one execution ended, callbacks included.

    Attributes:
        result: the value, pickled
        ordinary: a success that is noted, and stored together with others
        error: what was raised; the rest means nothing then
    """

    value: Any
    result: bytes
    ordinary: bool
    error: ExcInfo | None


def store_result(context: JobContext, call_next: CallNext) -> None:
    """
    Store what the job returned or raised; a result that cannot be pickled fails the job.

    An ordinary success is noted, and stored together with others in one round trip. All else goes through RQ's own
    code, at once.
    """
    store(context, conclude(context, call_next))


def conclude(context: JobContext, call_next: CallNext) -> Conclusion:
    """Run all that is the user's: the job, the pickling of its result, its callback."""
    try:
        value = call_next(context)
        context.ended = time.time()
        result = _pickled(context, value)
        ordinary = context.batched and not isinstance(value, Retry) and not context.changed
        if not ordinary:
            context.job.ended_at = datetime.fromtimestamp(context.ended, UTC)  # callbacks look at it
            context.services.rq.success_callback(context.job, value)
    except BaseException as error:  # noqa: BLE001 - whatever user code raises is the job's outcome
        context.ended = time.time()
        context.error = error
        begin_storing(context)
        raised = (type(error), error, _users_part(error.__traceback__))
        stopped = isinstance(error, JobStopRequested)
        return Conclusion(None, b"", False, context.services.rq.failure_callback(context.job, raised, stopped=stopped))
    return Conclusion(value, result, ordinary, None)


def store(context: JobContext, conclusion: Conclusion) -> None:
    """Have it stored; ``context.status`` says as what."""
    value, result, ordinary, error = conclusion
    if error is not None:
        _store_failure(context, error)
    elif ordinary:
        _note_success(context, value, result)
    else:
        _store_success(context, value, result)


def _pickled(context: JobContext, value: Any) -> bytes:
    """Pickle the result: the user's ``__reduce__`` runs here, and may hang as any code of theirs."""
    if type(value) in _PLAIN:
        return serializer.result(value, context.title)
    limit_s = context.time_limit
    error = JobTimedOut(f"the result could not be pickled within {limit_s or 0:g} s")
    work = Work(Phase.STORING, context.job_id, context.execution_id)
    with context.services.deadlines.limit(limit_s, work, error):
        return serializer.result(value, context.title)


def _note_success(context: JobContext, value: Any, result: bytes) -> None:
    fields, kind = context.claimed.fields, context.kind
    stored = b"" if value is None else b2a_base64(result, newline=False)
    success = Success(
        context.job_id,
        context.execution_id,
        kind.queue,
        kind.told,
        context.started,
        context.ended,
        kind.result_ttl,
        stored,
        marked=b"envq_alone" in fields or (bool(kind.unusual) and not fields.keys().isdisjoint(_MARKS)),
        depends=bool(kind.unusual) and not fields.keys().isdisjoint(_DEPENDS),
        signature=success_signature(context.job_id, context.execution_id, stored) if job_keys() else "",
    )
    if not context.services.batch.end(success, lambda: _store_late(context, value, result)):
        _store_success(context, value, result)
        return
    context.status = "finished"
    context.services.slot.end_job()


def _store_late(context: JobContext, value: Any, result: bytes) -> None:
    _store_by_itself(context, value, result)
    context.services.slot.leave_job()  # it was counted at its end


def _store_success(context: JobContext, value: Any, result: bytes) -> None:
    _store_by_itself(context, value, result)
    context.services.slot.end_job()


def _store_by_itself(context: JobContext, value: Any, result: bytes) -> None:
    services, job = context.services, context.job
    begin_storing(context)
    with serializer.standing_for(value, result):  # the value itself may have changed since
        context.status = services.storing.store(job, lambda: services.rq.success(job, context.execution, value))
    if context.status == "finished":
        job.send_webhooks(job.get_status(refresh=False))


def _store_failure(context: JobContext, error: ExcInfo) -> None:
    services, job = context.services, context.job
    stopped = isinstance(context.error, JobStopRequested)
    context.status = services.storing.store(
        job, lambda: services.rq.failure(job, context.execution, error, stopped=stopped)
    )
    services.slot.end_job()


def begin_storing(context: JobContext) -> None:
    """From here on, whoever dies has run the job."""
    context.services.rq.note(context.execution)
    context.services.slot.write(Phase.STORING, context.job_id, context.execution_id)
    context.job.ended_at = datetime.fromtimestamp(context.ended, UTC)


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
