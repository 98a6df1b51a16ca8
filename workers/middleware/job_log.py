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
    speaks = log.isEnabledFor(logging.INFO)
    if speaks:
        log.info("→ %s %s", context.title, context.job_id, extra=_fields(context))
    began = time.perf_counter()
    try:
        return call_next(context)
    finally:
        if speaks or context.status != "finished":
            _tell_end(context, round((time.perf_counter() - began) * 1000, 1))


def _tell_end(context: JobContext, duration_ms: float) -> None:
    finished = context.status == "finished"
    log.log(
        _LEVELS.get(context.status, logging.INFO),
        "%s %s %s %s in %s ms%s",
        "←" if finished else "x",
        context.title,
        context.job_id,
        context.status,
        duration_ms,
        f": {headline(context.error)}" if context.error else "",
        extra=_fields(context) | {"duration_ms": duration_ms, "status": context.status},
    )


def _fields(context: JobContext) -> dict[str, Any]:
    return {
        "job_id": context.job_id,
        "execution_id": context.execution_id,
        "queue": context.queue,
        "func": context.title,
        "worker": context.services.executor,
    }
