"""One line at the start and one at the end of each job. Fails open."""

from __future__ import annotations

import logging
import time
from typing import Any

from envq.errors import headline
from envq.workers.execution.context import CallNext, JobContext
from envq.workers.logs import short_way

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
        _tell_start(context)
    began = time.perf_counter()
    try:
        return call_next(context)
    finally:
        if speaks or context.status != "finished":
            _tell_end(context, round((time.perf_counter() - began) * 1000, 1))


def write_waiting() -> None:
    """The end of a job is written with the start of the next one, or now."""
    handler = short_way()
    if handler is not None:
        handler.write_waiting()


def _tell_start(context: JobContext) -> None:
    handler = short_way()
    if handler is not None:
        handler.line(context.started, f"→ {context.title} {context.job_id}")
    else:
        log.info("→ %s %s", context.title, context.job_id, extra=_fields(context))


def _tell_end(context: JobContext, duration_ms: float) -> None:
    finished = context.status == "finished"
    if finished and (handler := short_way()) is not None:
        handler.late_line(context.ended, f"← {context.title} {context.job_id} finished in {duration_ms} ms")
        return
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
