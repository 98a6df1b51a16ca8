"""Ending a job that must not run again: its process died too often, its time was up, or it was stopped."""

from __future__ import annotations

import json
import logging
from typing import Any, cast

from envq.clock import utc_now
from envq.errors import JobInterrupt, JobStopRequested, JobTimedOut, WorkerLost
from envq.store.scripts import CRASHES_ALLOWED, Claimed
from envq.workers.execution.rq_path import ExcInfo
from envq.workers.execution.worker_job import WorkerJob
from envq.workers.parts import Parts
from envq.workers.slot import Phase

log = logging.getLogger("envq.job")


def settle(parts: Parts, claimed: Claimed, reason: bytes) -> None:
    """Take the job through RQ's failure path: callbacks, dependents, and for a timeout the retry that is left."""
    job = parts.load(claimed)
    if job is None:
        return
    why = _read(reason)
    error = _error(why)
    if isinstance(error, WorkerLost):
        job.retries_left = None  # it went back as often as it may
    job.ended_at = utc_now()
    stopped = isinstance(error, JobStopRequested)
    info: ExcInfo = (type(error), error, None)
    if why.get("deaths", 0) <= CRASHES_ALLOWED:
        parts.services.slot.write(Phase.STORING, job.id)  # what kills the process from here on is counted
        job.load_meta()
        info = parts.rq.failure_callback(job, info, stopped=stopped)
    else:
        log.error("job %s: its callback killed too many processes and is left out", job.id, extra=_fields(parts, job))
    status = parts.services.storing.store(job, lambda: parts.rq.failure(job, None, info, stopped=stopped))
    log.warning("x %s %s %s: %s", job.title, job.id, status, error, extra=_fields(parts, job))


def _read(reason: bytes) -> dict[str, Any]:
    try:
        why = json.loads(reason)
    except ValueError:
        return {}
    return cast(dict[str, Any], why) if isinstance(why, dict) else {}


def _error(reason: dict[str, Any]) -> WorkerLost | JobInterrupt:
    detail = str(reason.get("detail") or "its process died")
    match reason.get("kind"):
        case "timeout":
            return JobTimedOut(detail)
        case "stopped":
            return JobStopRequested(detail)
        case _:
            return WorkerLost(detail)


def _fields(parts: Parts, job: WorkerJob) -> dict[str, Any]:
    return {"job_id": job.id, "queue": job.origin, "func": job.title, "worker": parts.services.executor}
