"""Two pieces of RQ that its worker works with, put right: the queue of dependents, and the limit of callbacks."""

from __future__ import annotations

from typing import Any, cast

from redis import RedisError
from rq import Queue
from rq.registry import ReadyJobRegistry
from rq.timeouts import BaseDeathPenalty

from envq.workers.execution.deadline import Deadlines, Limit, Work
from envq.workers.slot import Phase


class WatchedQueue(Queue):
    """RQ's queue, which tells when dependents were left on their way."""

    def enqueue_ready_jobs_by_queue(self, job_ids_by_queue_name: dict[str, list[str]]) -> None:
        """Enqueue them; redis.RedisError where some are still not."""
        super().enqueue_ready_jobs_by_queue(job_ids_by_queue_name)
        for name, job_ids in job_ids_by_queue_name.items():
            left = cast(Any, self.connection).zmscore(ReadyJobRegistry(name, self.connection).key, job_ids)
            if any(score is not None for score in left):
                raise RedisError(f"dependents in queue {name} are ready, but not enqueued")


def callback_limit(deadlines: Deadlines) -> type[BaseDeathPenalty]:
    """RQ's own limit for callbacks would reset SIGALRM to its default; this one uses ours."""

    class CallbackLimit(BaseDeathPenalty):
        def __init__(self, timeout: float, exception: type[Exception], job_id: str = "") -> None:
            error = exception(f"callback exceeded its timeout of {timeout:g} s")
            seconds = timeout if timeout > 0 else None
            self._limit: Limit = deadlines.limit(seconds, Work(Phase.STORING, job_id), error)

        def setup_death_penalty(self) -> None:
            self._limit.__enter__()

        def cancel_death_penalty(self) -> None:
            self._limit.__exit__(None, None, None)

    return CallbackLimit
