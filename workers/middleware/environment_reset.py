"""No job starts while a variable that an earlier job used is not reset (C6). Fails closed."""

from __future__ import annotations

from typing import Any, Final

from envq.workers.execution.context import CallNext, JobContext

QUICK_S: Final = 0.001  # a reset that takes no longer may come before the results of its batch are stored


def environment_reset(context: JobContext, call_next: CallNext) -> Any:
    """Outermost. What takes long is reset once the results are stored, so that no caller waits for it."""
    runtime, batch = context.services.runtime, context.services.batch
    runtime.begin_job(context.job_id, context.title)
    try:
        return call_next(context)
    finally:
        if runtime.is_used and (not batch.goes_on or runtime.expected_reset_s > QUICK_S):
            batch.try_store()
        runtime.end_job()
