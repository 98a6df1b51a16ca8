"""Each job in a forked copy of the executor, in place of ``store_result`` (``--isolate``)."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from functools import partial
from multiprocessing.util import Finalize
from typing import Any, Final

from rq import job_lifecycle
from rq.job import Retry

from envq.code.serializer import serializer
from envq.errors import JobStopRequested, WorkerLost
from envq.store.scripts import Why
from envq.workers.execution.context import CallNext, JobContext
from envq.workers.execution.copy import Copy, Ended
from envq.workers.execution.deadline import Work
from envq.workers.execution.raised import raised_in_copy
from envq.workers.exits import describe_exit
from envq.workers.middleware.store_result import Conclusion, begin_storing, conclude, store
from envq.workers.slot import Phase, Slot
from envq.workers.watchman import Watchman

STOP_SHARE: Final = 0.8  # of the grace: before the supervisor would kill the executor as well


class Isolation:
    """
    Runs what is inside it in a copy, and stores here how it ended.

    The copy sees the variables as they are, a snapshot; what the job does to them ends with the copy. A copy
    that dies costs its job alone, by the same rules as the death of an executor. Fails closed: no job runs here.
    """

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._watched = Slot(multiprocessing.get_context("fork"))
        self._watchman = Watchman()
        Finalize(self, self._watchman.close, exitpriority=0)  # executors end without atexit

    def __call__(self, context: JobContext, call_next: CallNext) -> None:
        """Blocks until the copy is gone, and with it all that it started."""
        ended = self._run(context, call_next)
        if ended.message is None:
            _release(context, ended)
            return
        _take_over(context, ended.message)

    def _run(self, context: JobContext, call_next: CallNext) -> Ended:
        services = context.services
        work = Work(Phase.RUNNING, context.job_id, context.execution_id)
        copy: Copy | None = None
        self._watchman.tend()
        try:
            # No limit here: the copy keeps its own, and is killed where it does not.
            with services.deadlines.limit(None, work, JobStopRequested(f"job {context.job_id} was stopped")):
                # A stop between the fork and the name of what was forked would leave it behind.
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
                try:
                    inside = partial(_message, context, call_next)
                    copy = Copy(inside, services.slot, self._watched, self._grace_s, self._watchman)
                finally:
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
                return copy.wait()
        except JobStopRequested as error:
            context.error = error
            if copy is None:
                return Ended(0, None, 0, 0, overdue=False)
            copy.ask_to_stop(context.job_id)
            return copy.wait(self._grace_s * STOP_SHARE)


def _message(context: JobContext, call_next: CallNext) -> bytes:
    """In the copy: run the job, and say how it ended."""
    value, result, ordinary, error = conclude(context, call_next)
    said: dict[str, Any] = {
        "started": context.started,
        "ended": context.ended,
        "none": value is None,
        "retry": value if isinstance(value, Retry) else None,
        "result": result,
        "ordinary": ordinary,
        "changed": context.job.changes if context.changed else {},
    }
    if error is not None:
        said["error"] = (type(error[1]).__name__, _text_of(error[1]), job_lifecycle.format_exc_info(error))
        said["stopped"] = isinstance(context.error, JobStopRequested)
    return pickle.dumps(said)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - the user's __str__
        return "<its text cannot be made>"


def _take_over(context: JobContext, message: bytes) -> None:
    """Store here what the copy told; results stay pickled."""
    said: dict[str, Any] = pickle.loads(message)
    context.ended = said["ended"]
    if said["changed"]:
        context.job.take_changes(said["changed"])
    if "error" in said:
        error = raised_in_copy(*said["error"])
        context.error = JobStopRequested(str(error)) if said["stopped"] else error
        begin_storing(context)
        store(context, Conclusion(None, b"", False, (type(error), error, None)))
        return
    value = said["retry"] if said["retry"] is not None else None if said["none"] else _Elsewhere()
    with serializer.standing_for(value, said["result"]):
        store(context, Conclusion(value, said["result"], said["ordinary"], None))


class _Elsewhere:
    """Stands for a result that is pickled already, and was somewhere else."""


def _release(context: JobContext, ended: Ended) -> None:
    """The copy died without a word: the job goes back, counted, or is ended, as after the death of an executor."""
    stopped = context.error is not None
    why: Why = "stopped" if stopped else "timeout" if ended.overdue else "crash"
    how = describe_exit(ended.exit_code, killed_by_us=stopped or ended.overdue)
    because = {
        "stopped": ": it was stopped on request, by force",
        "timeout": ": it did not end within its limit and the grace",
        "crash": "",
    }[why]
    used = f" with {', '.join(ended.read)} in use" if ended.read else ""
    memory = f" (peak memory {ended.peak_mib} MiB)"
    detail = f"the process {ended.pid} of job {context.job_id} {how} while it ran{used}{because}{memory}"
    context.error = WorkerLost(detail)
    context.status = context.services.storing.give_back(context.job_id, why, detail)
    context.services.slot.end_job()
