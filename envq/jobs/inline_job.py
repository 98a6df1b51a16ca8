"""Jobs where there is no server: they run when they are enqueued, and keep what became of them."""

from __future__ import annotations

import traceback
from typing import Any, cast

from rq.job import JobStatus

from envq.driver.inline import InlineRuns
from envq.errors import JobFailed
from envq.jobs.job import Job
from envq.jobs.outcome import Outcome


class InlineJob(Job[Any]):
    """Answers from its own memory what a job would ask the server."""

    def get_status(self, refresh: bool = True) -> JobStatus:
        """Where it stands."""
        return self._status

    def set_status(self, status: JobStatus, pipeline: Any = None) -> None:
        """Note where it stands."""
        self._status = status

    def refresh(self) -> None:
        """Nothing is newer than this."""

    def save(self, pipeline: Any = None, include_meta: bool = True, include_result: bool = True) -> None:
        """It is kept as it is."""

    def save_meta(self) -> None:
        """It is kept as it is."""

    def get_meta(self, refresh: bool = True) -> dict[str, Any]:
        """Its meta."""
        return self.meta

    def return_value(self, refresh: bool = False) -> Any:
        """What it returned; None before it has run and where it failed, as with RQ."""
        return self.outcome_here.value if self.outcome_here else None

    def cancel(self, *_: Any, **__: Any) -> dict[str, list[str]]:
        """It does not run any more, if it has not yet."""
        self._status = JobStatus.CANCELED
        return {}


def run_inline(job: Job[Any], runs: InlineRuns, jobs: dict[str, Any]) -> Job[Any]:
    """
    Run it now, and again at once as often as its ``retry`` allows; what it raises is kept, not raised.

    A job whose dependency did not succeed stays deferred. Timeouts and rate limits do not apply.
    """
    jobs[job.id] = job
    if not _dependencies_met(job, jobs):
        job.set_status(JobStatus.DEFERRED)
        return job
    while not _succeeds(job, runs) and job.should_retry:
        job.retries_left = cast(int, job.retries_left) - 1
    return job


def keep_scheduled(job: Job[Any], jobs: dict[str, Any]) -> Job[Any]:
    """Keep a job that is enqueued for later: nothing waits here, so it runs when the test says so."""
    jobs[job.id] = job
    job.set_status(JobStatus.SCHEDULED)
    return job


def _dependencies_met(job: Job[Any], jobs: dict[str, Any]) -> bool:
    allowed = {JobStatus.FINISHED, JobStatus.FAILED if job.allow_dependency_failures else JobStatus.FINISHED}
    ids = cast(list[str], cast(Any, job)._dependency_ids)
    return all(each in jobs and jobs[each].get_status() in allowed for each in ids)


def _succeeds(job: Job[Any], runs: InlineRuns) -> bool:
    job.set_status(JobStatus.STARTED)
    with runs.job(job.id):
        try:
            value = job.perform()
        except Exception as error:  # noqa: BLE001 - whatever a job raises is its outcome
            _failed(job, error)
            return False
    # As it would arrive: what the job still holds of it is not what the caller gets.
    job.outcome_here = Outcome(job.serializer.loads(job.serializer.dumps(value)))
    job.set_status(JobStatus.FINISHED)
    if job.success_callback is not None:
        job.success_callback(job, job.connection, value)
    return True


def _failed(job: Job[Any], error: Exception) -> None:
    text = "".join(traceback.format_exception(error))
    failed = JobFailed(f"job {job.id} ({job.description}): {type(error).__name__}: {error}\n\n{text}", job.id, text)
    failed.__cause__ = error
    job.outcome_here = Outcome(error=failed)
    job.set_status(JobStatus.FAILED)
    if job.failure_callback is not None:
        job.failure_callback(job, job.connection, type(error), error, error.__traceback__)
