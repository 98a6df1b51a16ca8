"""What the steps around one job share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from rq.executions import Execution

from envq.jobs.time_limit import stored_limit
from envq.runtime import Runtime
from envq.store.exchange import Claimed
from envq.workers.execution.batch import Batch
from envq.workers.execution.deadline import Deadlines
from envq.workers.execution.event_loop import EventLoop
from envq.workers.execution.rq_path import RqPath
from envq.workers.execution.storing import Storing
from envq.workers.execution.threads import VariableThreads
from envq.workers.execution.worker_job import WorkerJob
from envq.workers.slot import Slot

_THROUGH_RQ: Final = (b"success_callback_name", b"webhooks", b"repeats_left", b"rate_limit_key", b"group_id")
DEFAULT_RESULT_TTL_S: Final = 500
LONGEST_TTL_S: Final = 2**31  # what any server takes


@dataclass(frozen=True)
class Services:
    """The parts of an executor that middleware works with."""

    executor: str
    runtime: Runtime
    rq: RqPath
    storing: Storing
    batch: Batch
    deadlines: Deadlines
    loop: EventLoop
    threads: VariableThreads
    slot: Slot
    through_rq: bool  # every job is stored by RQ's own code


class JobContext:
    """
    One execution of one job, handed through the middleware.

    Attributes:
        job_id, execution_id, queue, title: what it is
        time_limit: seconds, None for no limit
        started, ended: seconds since the epoch; ``ended`` is 0.0 while it runs
        status: how it ended: finished, failed, retried, stopped, lost, deleted; "" before
        error: what it raised
    """

    __slots__ = (
        "_execution", "_job", "_notes", "claimed", "ended", "error", "execution_id", "job_id", "queue", "result_ttl",
        "services", "started", "status", "time_limit", "title",
    )  # fmt: skip

    def __init__(self, claimed: Claimed, services: Services, started: float) -> None:
        fields = claimed.fields
        self.claimed = claimed
        self.services = services
        self.job_id = claimed.job_id
        self.execution_id = claimed.execution_id
        self.queue = fields.get(b"origin", b"").decode()
        self.title = title_of(fields)
        timeout, exact = fields.get(b"timeout"), fields.get(b"envq_timeout")
        self.time_limit = stored_limit(float(timeout) if timeout else None, float(exact) if exact else None)
        result_ttl = fields.get(b"result_ttl")
        self.result_ttl = int(result_ttl) if result_ttl else DEFAULT_RESULT_TTL_S
        self.started = started
        self.ended = 0.0
        self.status = ""
        self.error: BaseException | None = None
        self._job: WorkerJob | None = None
        self._execution: Execution | None = None
        self._notes: dict[str, Any] | None = None

    @property
    def job(self) -> WorkerJob:
        """RQ's job."""
        if self._job is None:
            services = self.services
            self._job = WorkerJob.of(self.claimed, services.rq.connection, services.executor, self.started)
            self._job.run_coroutine = services.loop.run
        return self._job

    @property
    def execution(self) -> Execution:
        """RQ's record of this execution."""
        if self._execution is None:
            made = Execution(self.execution_id, self.job_id, self.services.rq.connection, self.services.executor)
            made.created_at = made.last_heartbeat = datetime.fromtimestamp(self.started, UTC)
            self._execution = made
        return self._execution

    @property
    def notes(self) -> dict[str, Any]:
        """For the user's own middleware."""
        if self._notes is None:
            self._notes = {}
        return self._notes

    @property
    def stored_with_others(self) -> bool:
        """A success of it takes no more than its record: no callback, webhook, repeat, rate limit, group."""
        fields = self.claimed.fields
        if self.services.through_rq:
            return False
        return not any(map(fields.get, _THROUGH_RQ)) and -1 <= self.result_ttl <= LONGEST_TTL_S


def title_of(fields: Mapping[bytes, bytes]) -> str:
    """The function's name; stock clients put arguments behind it, which belong in no log."""
    description = fields.get(b"description")
    return description.decode(errors="replace").partition("(")[0] if description else "unknown"


CallNext = Callable[[JobContext], Any]


class Middleware(Protocol):
    """One behaviour around a job: calls ``call_next(context)`` once, cleans up in ``finally``."""

    def __call__(self, context: JobContext, call_next: CallNext, /) -> Any: ...
