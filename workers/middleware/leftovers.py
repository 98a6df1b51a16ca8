"""What a job leaves running is ended, or makes what the job used untrustworthy. Fails closed."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Any, Final

from envq.runtime import TimeLimit
from envq.workers.execution.context import CallNext, JobContext
from envq.workers.execution.deadline import Work
from envq.workers.execution.event_loop import THREAD_PREFIX
from envq.workers.slot import Phase

CANCEL_WITHIN_S: Final = 10.0

log = logging.getLogger("envq.job")


def leftovers(context: JobContext, call_next: CallNext) -> Any:
    """
    Tasks left on the event loop are cancelled; a thread left behind forces a rebuild of what was used, and reads
    nothing any more.

    What a variable's own build started, because the job was the first to read it, is the variable's. Time
    limits and stops work by signals: handlers that the job has replaced are restored.
    """
    before = threading.enumerate()
    services = context.services
    try:
        return call_next(context)
    finally:
        if changed := services.deadlines.take_back():
            log.warning("job %s changed the handlers of %s; taken back", context.job_id, ", ".join(changed))
        if services.loop.in_use:
            _cancel_tasks(context)
        after = threading.enumerate()
        if after != before or services.loop.busy_threads or services.threads.left:
            _look_at_threads(context, before, after)


def _look_at_threads(context: JobContext, before: list[threading.Thread], after: list[threading.Thread]) -> None:
    services, known = context.services, set(before)
    new = [thread for thread in after if thread not in known]
    left = [thread for thread in new if not services.threads.of_variable(thread) and _may_touch(thread)]
    if left or services.loop.busy_threads:
        names = ", ".join(thread.name for thread in left) or "asyncio.to_thread"
        services.runtime.distrust_used(f"job {context.job_id} left a thread running ({names})")
    if services.loop.busy_threads:
        left += services.loop.abandon_threads()
    services.threads.leave(left)
    # A name that is found without asking is found by every thread.
    services.runtime.cache_reads = not services.threads.left


def _cancel_tasks(context: JobContext) -> None:
    services, job_id = context.services, context.job_id
    work = Work(Phase.RESETTING, f"the tasks that job {job_id} left")
    with (
        contextlib.suppress(TimeLimit),
        services.deadlines.limit(CANCEL_WITHIN_S, work, TimeLimit("tasks did not end when they were cancelled")),
    ):
        if cancelled := services.loop.cancel_leftovers():
            log.warning("job %s left %d task(s) or timer(s) on the event loop; cancelled", job_id, cancelled)
    if services.loop.holds_leftovers:
        services.runtime.distrust_used(f"job {job_id} left a task running that cannot be cancelled")


def _may_touch(thread: threading.Thread) -> bool:
    return thread.is_alive() and not thread.name.startswith(THREAD_PREFIX)
