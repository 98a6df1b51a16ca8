"""A job that does what its script says; each word is something jobs do to their own record, or how they end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rq import Queue, Retry, get_current_job
from rq.job import Job

PLAY = "support.same_jobs.play"
SUCCEEDED = "support.same_jobs.succeeded"
FAILED = "support.same_jobs.failed"
RAISES = "support.same_jobs.raises"


def play(script: list[str]) -> Any:
    """Do one thing after the other, then end as the last word says."""
    job: Any = get_current_job()
    plays = int(job.connection.incr(f"plays:{job.id}"))
    *changes, end = script
    for word in changes:
        CHANGES[word](job, plays)
    return ENDS[end](plays)


def succeeded(job: Job, connection: Any, value: Any) -> None:
    """Note what a callback sees."""
    connection.incr(f"succeeded:{_seen(job)}:{value!r}")


def failed(job: Job, connection: Any, kind: type[BaseException], _value: Any, _traceback: Any) -> None:
    """Note what a callback sees."""
    connection.incr(f"failed:{_seen(job)}:{kind.__name__}")


def raises(*_arguments: Any) -> None:
    raise LookupError("the callback")


def _seen(job: Job) -> str:
    status = job.get_status(refresh=False)
    there = [name for name in ("started_at", "ended_at", "worker_name") if getattr(job, name) is not None]
    return f"{job.id}:{status.value}:{there}:{job.meta}:{job.retries_left}"


def _save_meta(job: Job, plays: int) -> None:
    job.meta["plays"] = plays
    job.save_meta()


def _set_meta(job: Job, plays: int) -> None:
    job.meta["lost"] = plays


def _describe(job: Job, plays: int) -> None:
    job.description = f"described, {plays}"


def _keep_nothing(job: Job, _plays: int) -> None:
    job.result_ttl = 0


def _keep_for_ever(job: Job, _plays: int) -> None:
    job.result_ttl = job.failure_ttl = -1


def _give_up(job: Job, _plays: int) -> None:
    job.retries_left = 0


def _gain_dependent(job: Job, plays: int) -> None:
    Queue("high", connection=job.connection).enqueue(PLAY, ["value"], job_id=f"{job.id}-{plays}", depends_on=job.id)


def _enqueue(job: Job, plays: int) -> None:
    Queue("low", connection=job.connection).enqueue(PLAY, ["value"], job_id=f"{job.id}-{plays}")


def _enqueue_itself(job: Job, plays: int) -> None:
    if plays < 3:
        Queue(job.origin, connection=job.connection).enqueue(PLAY, job.args[0], job_id=job.id)


def _stored(job: Job) -> Job:
    return Job.fetch(job.id, connection=job.connection)


CHANGES: dict[str, Callable[[Job, int], Any]] = {
    "save meta": _save_meta,
    "set meta": _set_meta,
    "describe": _describe,
    "keep nothing": _keep_nothing,
    "keep for ever": _keep_for_ever,
    "give up": _give_up,
    "save": lambda job, _plays: job.save(),
    "refresh": lambda job, _plays: job.refresh(),
    "gain dependent": _gain_dependent,
    "enqueue": _enqueue,
    "enqueue itself": _enqueue_itself,
    "cancel itself": lambda job, _plays: _stored(job).cancel(),
    "cancel itself for its dependents": lambda job, _plays: _stored(job).cancel(enqueue_dependents=True),
    "delete itself": lambda job, _plays: _stored(job).delete(),
}


def _raise(plays: int) -> None:
    raise ValueError(f"on purpose, {plays}")


def _exit(_plays: int) -> None:
    raise SystemExit(3)


ENDS: dict[str, Callable[[int], Any]] = {
    "none": lambda _plays: None,
    "value": lambda plays: {"plays": plays, "text": "é\n\x00"},
    "raise": _raise,
    "raise once": lambda plays: 1 // (plays - 1),
    "exit": _exit,
    "retry": lambda _plays: Retry(max=2),
    "retry in front": lambda _plays: Retry(max=1, enqueue_at_front=True),
    "retry later": lambda _plays: Retry(max=2, interval=[1000, 2000]),
}
