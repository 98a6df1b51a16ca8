"""Storing the end of an execution exactly once, whatever becomes of the connection meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, cast

from envq.store.connection import REDIS_ERRORS, is_about_the_data
from envq.store.keys import Keys
from envq.workers.execution.fence import Fence, FencedRedis, Refused
from envq.workers.execution.worker_job import WorkerJob

log = logging.getLogger("envq.worker")

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0

# What RQ's code changes on the job while it builds a transaction that may not commit.
_CHANGED: Final = (
    "retries_left",
    "number_of_retries",
    "repeats_left",
    "repeat_intervals",
    "enqueue_at_front_on_retry",
    "enqueued_at",
)


class Storing:
    """Repeats a transaction until it is known to be stored, or the claim is known to be gone."""

    def __init__(
        self,
        connection: FencedRedis,
        keys: Keys,
        executor: str,
        give_up: Callable[[WorkerJob, BaseException], str],
    ) -> None:
        """``give_up`` ends a job of whose record RQ's code can make nothing."""
        self._connection = connection
        self._give_up = give_up
        self._claims_key = keys.claims(executor)

    def store(self, job: WorkerJob, write: Callable[[], str]) -> str:
        """
        Run ``write`` under the claim; the status it returns, or "lost" if the claim went to another.

        Of a job that was deleted meanwhile ``write`` is told by the fence, and asked once more.
        Blocks while Redis is away: the result of a job that ended is not given up. A reply that was lost
        is settled by asking whether the claim is still there.
        """
        before = {name: getattr(job, name) for name in _CHANGED}
        pause_s = FIRST_PAUSE_S
        with self._fenced(job) as fence:
            while True:
                try:
                    status = self._try(job, write, fence)
                except Exception as error:  # RQ's code raises anything for a damaged record
                    log.exception("job %s cannot be stored in the usual way", job.id)
                    write = partial(self._give_up, job, error)
                    continue
                if fence.settled:
                    return status
                standing = self._claim_stands(job.id)
                if standing is False:
                    return status or "lost"
                for name, value in before.items():
                    setattr(job, name, value)
                time.sleep(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    @contextmanager
    def _fenced(self, job: WorkerJob) -> Generator[Fence]:
        fence = self._connection.fence = Fence(self._claims_key, job.id)
        job.storing = True
        try:
            yield fence
        finally:
            job.storing = False
            self._connection.fence = None

    def _try(self, job: WorkerJob, write: Callable[[], str], fence: Fence) -> str:
        try:
            return write()
        except Refused as error:
            log.warning("%s", error)
        except REDIS_ERRORS as error:
            if is_about_the_data(error):
                raise
            if not fence.settled:
                log.warning("job %s is not stored yet, trying again: %s", job.id, error)
        return ""

    def _claim_stands(self, job_id: str) -> bool | None:
        """Whether the claim is there; None while Redis does not answer."""
        try:
            return cast(Any, self._connection).lpos(self._claims_key, job_id) is not None
        except REDIS_ERRORS:
            return None
