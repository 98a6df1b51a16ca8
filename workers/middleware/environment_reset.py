"""No job starts while a variable that an earlier job used is not reset (C6). Fails closed."""

from __future__ import annotations

from typing import Any

from envq.workers.execution.context import CallNext, JobContext


def environment_reset(context: JobContext, call_next: CallNext) -> Any:
    """Outermost: the result is stored first, so the caller does not wait for the reset."""
    runtime = context.services.runtime
    runtime.begin_job(context.job.id)
    try:
        return call_next(context)
    finally:
        runtime.end_job()
