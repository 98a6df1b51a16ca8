"""What the steps around one job share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from rq.executions import Execution

from envq.runtime import Runtime
from envq.workers.execution.deadline import Deadlines
from envq.workers.execution.event_loop import EventLoop
from envq.workers.execution.rq_path import RqPath
from envq.workers.execution.storing import Storing
from envq.workers.execution.threads import VariableThreads
from envq.workers.execution.worker_job import WorkerJob
from envq.workers.slot import Slot


@dataclass(frozen=True)
class Services:
    """The parts of an executor that middleware works with."""

    executor: str
    runtime: Runtime
    rq: RqPath
    storing: Storing
    deadlines: Deadlines
    loop: EventLoop
    threads: VariableThreads
    slot: Slot


@dataclass
class JobContext:
    """One execution of one job, handed through the middleware."""

    job: WorkerJob
    execution: Execution
    services: Services
    status: str = ""  # how it ended, once stored: finished, failed, retried, stopped, lost, deleted
    error: BaseException | None = None
    notes: dict[str, Any] = field(default_factory=dict[str, Any])  # for the user's own middleware


CallNext = Callable[[JobContext], Any]


class Middleware(Protocol):
    """One behaviour around a job: calls ``call_next(context)`` once, cleans up in ``finally``."""

    def __call__(self, context: JobContext, call_next: CallNext, /) -> Any: ...
