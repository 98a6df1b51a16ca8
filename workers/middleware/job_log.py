"""One line at the start and one at the end of each job. Fails open."""

from __future__ import annotations

import logging
import time
from typing import Any

from envq.errors import headline
from envq.workers.execution.context import CallNext, JobContext

log = logging.getLogger("envq.job")

_LEVELS = {
    "failed": logging.ERROR,
    "lost": logging.WARNING,
    "deleted": logging.WARNING,
    "stopped": logging.WARNING,
    "retried": logging.WARNING,
}


def job_log(context: JobContext, call_next: CallNext) -> Any:
    """Never arguments: they may be large or personal."""
    job = context.job
    fields = {
        "job_id": job.id,
        "execution_id": context.execution.id,
        "queue": job.origin,
        "func": job.title,
        "worker": context.services.executor,
    }
    log.info("→ %s %s", job.title, job.id, extra=fields)
    began = time.perf_counter()
    try:
        return call_next(context)
    finally:
        duration_ms = round((time.perf_counter() - began) * 1000, 1)
        fields |= {"duration_ms": duration_ms, "status": context.status}
        mark = "←" if context.status == "finished" else "x"
        reason = f": {headline(context.error)}" if context.error else ""
        log.log(
            _LEVELS.get(context.status, logging.INFO),
            "%s %s %s %s in %s ms%s",
            mark,
            job.title,
            job.id,
            context.status,
            duration_ms,
            reason,
            extra=fields,
        )
