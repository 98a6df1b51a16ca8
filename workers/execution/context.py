"""What the steps around one job share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from rq.executions import Execution

from envq.jobs.signed import require_signed
from envq.runtime import Runtime
from envq.store.exchange import Claimed
from envq.workers.execution.batch import Batch
from envq.workers.execution.deadline import Deadlines
from envq.workers.execution.event_loop import EventLoop
from envq.workers.execution.kind import goes_through_rq, is_ordinary, kind_of
from envq.workers.execution.rq_path import RqPath
from envq.workers.execution.storing import Storing
from envq.workers.execution.threads import Threads
from envq.workers.execution.worker_job import WorkerJob
from envq.workers.slot import Slot


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
    threads: Threads
    slot: Slot
    through_rq: bool  # every job is stored by RQ's own code


class JobContext:
    """
    One execution of one job, handed through the middleware.

    Attributes:
        job_id, execution_id, queue, title: what it is
        time_limit: seconds, None for no limit
        started, ended: seconds since the epoch; ``ended`` is 0.0 while it runs
        batched: a success is noted, and stored with others
        status: how it ended: finished, failed, retried, stopped, lost, deleted; "" before
        error: what it raised
    """

    __slots__ = (
        "_execution", "_job", "_notes", "batched", "claimed", "ended", "error", "execution_id", "job_id", "kind",
        "queue", "services", "started", "status", "time_limit", "title",
    )  # fmt: skip

    def __init__(self, claimed: Claimed, services: Services) -> None:
        """Raises what RQ raises for a record that it cannot read, and PayloadError for one that is refused."""
        fields = claimed.fields
        require_signed(claimed.job_id, fields)
        self.kind = kind = kind_of(fields)
        self.claimed = claimed
        self.services = services
        self.job_id = claimed.job_id
        self.execution_id = claimed.execution_id
        self.queue = kind.queue
        self.title = kind.title
        self.time_limit = kind.time_limit
        self.batched = kind.batchable and not services.through_rq
        self.started = time.time()
        self.ended = 0.0
        self.status = ""
        self.error: BaseException | None = None
        self._job: WorkerJob | None = None
        self._execution: Execution | None = None
        self._notes: dict[str, Any] | None = None
        if not is_ordinary(fields, kind):
            self.batched = self.batched and not goes_through_rq(fields)
            self.job.fill()

    @property
    def job(self) -> WorkerJob:
        """RQ's job."""
        if self._job is None:
            services = self.services
            self._job = WorkerJob.of(self.claimed, services.rq.connection, services.executor, self.started)
            self._job.run_coroutine = services.loop.run
        return self._job

    @property
    def changed(self) -> bool:
        """The job changed in its own record what RQ stores again with each result."""
        return self._job is not None and self._job.changed

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


CallNext = Callable[[JobContext], Any]


class Middleware(Protocol):
    """One behaviour around a job: calls ``call_next(context)`` once, cleans up in ``finally``."""

    def __call__(self, context: JobContext, call_next: CallNext, /) -> Any: ...
