"""Ending a job that must not run again: its process died too often, its time was up, or it was stopped."""

from __future__ import annotations

import json
import logging
import pickle
from base64 import b64decode
from datetime import UTC, datetime
from typing import Any, cast

from rq.executions import Execution

from envq.clock import utc_now
from envq.code.serializer import serializer
from envq.errors import JobInterrupt, JobStopRequested, JobTimedOut, WorkerLost
from envq.store.exchange import Claimed
from envq.store.scripts import CRASHES_ALLOWED
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
    if why.get("kind") == "finished":
        _settle_success(parts, job, why)
        return
    if why.get("kind") == "ended":
        parts.rq.follow_up(job)
        parts.rq.forget_settling(job)
        return
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
        job.meta = {}  # nor is its meta unpickled, and what is stored stays
        log.error("job %s: its callback killed too many processes and is left out", job.id, extra=_fields(parts, job))
    status = parts.services.storing.store(job, lambda: parts.rq.failure(job, None, info, stopped=stopped))
    log.warning("x %s %s %s: %s", job.title, job.id, status, error, extra=_fields(parts, job))


def _settle_success(parts: Parts, job: WorkerJob, why: dict[str, Any]) -> None:
    """Store the result of a job whose executor died after its end; its dependents need RQ's own code."""
    execution = Execution(str(why.get("execution")), job.id, parts.connection, parts.services.executor)
    execution.created_at = job.started_at = datetime.fromtimestamp(float(why["started"]), UTC)
    job.ended_at = datetime.fromtimestamp(float(why["ended"]), UTC)
    packed = b64decode(why.get("result") or "") or pickle.dumps(None)
    value = _Stored()
    parts.rq.note(execution)
    with serializer.standing_for(value, packed):
        status = parts.services.storing.store(job, lambda: parts.rq.success(job, execution, value))
    log.info("← %s %s %s, stored after its executor died", job.title, job.id, status, extra=_fields(parts, job))


class _Stored:
    """Stands for a result that is pickled already."""


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
