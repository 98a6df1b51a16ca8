"""The job as an executor runs it: RQ's job, filled from its record when somebody asks, on our event loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, Final, Self, cast

from redis import Redis
from redis.client import Pipeline
from rq.exceptions import DeserializationError
from rq.job import JobStatus

from envq.code.serializer import serializer
from envq.errors import PayloadError
from envq.jobs.job import Job
from envq.store.exchange import Claimed
from envq.workers.execution.calling import function_named, function_of, unpack

_CLAIMED: Final = "_claimed"
# What RQ stores again with each result, times apart: a job may have changed it.
_STORED_AGAIN: Final = frozenset(
    {"description", "origin", "timeout", "result_ttl", "failure_ttl", "ttl", "group_id", "created_at", "enqueued_at",
     "worker_name", "webhooks", "retries_left", "number_of_retries", "retry_intervals", "enqueue_at_front_on_retry",
     "repeats_left", "repeat_intervals", "rate_limit_key", "rate_limit_concurrency", "allow_dependency_failures",
     "enqueue_at_front", "_success_callback_name", "_failure_callback_name", "_stopped_callback_name"}
)  # fmt: skip


class WorkerJob(Job[Any]):
    """One claimed job. ``run_coroutine`` is the executor's lasting event loop."""

    run_coroutine: Callable[[Coroutine[Any, Any, Any]], Any]
    storing = False
    _as_read: dict[str, Any]

    @classmethod
    def of(cls, claimed: Claimed, connection: Redis, executor: str, started: float) -> Self:
        """
        The job of a claim.

        Its attributes are read from the record at the first look at any of them: most jobs never look.
        """
        job = object.__new__(cls)
        vars(job).update(_id=claimed.job_id, connection=connection)
        vars(job)[_CLAIMED] = (claimed, executor, started)
        return job

    @classmethod
    def named(cls, job_id: str, connection: Redis) -> Self:
        """A job of which nothing is known but its id, whatever signs that has."""
        job = cls(connection=connection)
        job._id = job_id
        return job

    def __getattr__(self, name: str) -> Any:
        # Only for what is not there: before the record was read, nothing is.
        if name == "meta" and self._filled:
            self.load_meta()
        elif self._filled or (name.startswith("__") and name.endswith("__")) or _CLAIMED not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        else:
            self.fill()
        return getattr(self, name)

    def fill(self) -> None:
        """
        Read the record; raises what RQ raises for one that it cannot read.

        But for ``meta``, which RQ would unpickle at once. That runs code of users, which may end the process: not
        before somebody asks for it, or nobody would be blamed.
        """
        if self._filled:
            return
        claimed, executor, started = self.__dict__[_CLAIMED]
        before = dict(self.__dict__)
        self._as_read = {}
        Job.__init__(self, None, self.connection, serializer)  # RQ refuses ids that its older versions took
        self._id = claimed.job_id
        self.restore({name: value for name, value in claimed.fields.items() if name != b"meta"})
        del self.meta
        if claimed.execution_id:
            self.started_at = self.last_heartbeat = datetime.fromtimestamp(started, UTC)
            self.worker_name = executor
            self._status = JobStatus.STARTED
        self._as_read = self._stored_again()
        self.__dict__.update(before)

    def refresh(self) -> None:
        """As in RQ, of which the record is not all there is to a job."""
        if _CLAIMED in self.__dict__:
            self.fill()
        super().refresh()

    @property
    def _filled(self) -> bool:
        return "_as_read" in self.__dict__

    @property
    def changed(self) -> bool:
        """Whether somebody assigned to what RQ stores again with each result."""
        if self._filled:
            return self._stored_again() != self._as_read
        return not _STORED_AGAIN.isdisjoint(self.__dict__)

    @property
    def changes(self) -> dict[str, Any]:
        """What was assigned to of what RQ stores again, by attribute."""
        self.fill()
        now = self._stored_again()
        return {name: value for name, value in now.items() if value != self._as_read.get(name)}

    def take_changes(self, changes: dict[str, Any]) -> None:
        """Have what was changed in a copy of this process."""
        self.fill()
        self.__dict__.update(changes)

    def _stored_again(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name in _STORED_AGAIN}

    @property
    def title(self) -> str:
        """The function's name; stock clients put arguments behind it, which belong in no log."""
        return (self.description or "unknown").partition("(")[0]

    def load_meta(self) -> None:
        """Unpickle what was left out."""
        stored = self.__dict__[_CLAIMED][0].fields.get(b"meta")
        try:
            self.meta = self.serializer.loads(stored) if stored else {}
        except Exception:  # noqa: BLE001 - as in RQ, which keeps what it cannot read
            self.meta, self._unreadable_meta = {"unserialized": stored}, stored

    def remember_status(self, status: JobStatus) -> None:
        """Set the status RQ's code goes by, without writing it."""
        self._status = status

    def set_status(self, status: JobStatus, pipeline: Pipeline | None = None) -> None:
        """RQ's retry writes a status outside of its transaction; while storing, only the transaction counts."""
        if self.storing and pipeline is None:
            self.remember_status(status)
        else:
            super().set_status(status, pipeline)

    def save(self, pipeline: Pipeline | None = None, include_meta: bool = True, include_result: bool = True) -> None:
        """RQ compresses and sends the whole payload again with each result; it has not changed."""
        mapping = self.to_dict(include_meta=include_meta, include_result=include_result)
        mapping.pop("data", None)
        cast(Any, pipeline if pipeline is not None else self.connection).hset(self.key, mapping=mapping)

    @property
    def func(self) -> Callable[..., Any] | None:
        """The function; PayloadError where this worker cannot import it."""
        if self.func_name is None or self.instance:
            return cast("Callable[..., Any] | None", super().func)
        return function_named(self.func_name)

    def _deserialize_data(self) -> None:
        try:
            super()._deserialize_data()
        except DeserializationError as error:
            cause = error.__cause__ or error
            raise PayloadError(
                f"the payload of job {self.id} cannot be unpickled on this worker ({type(cause).__name__}: {cause})"
            ) from cause

    def _execute(self) -> Any:
        call = unpack(self.__dict__[_CLAIMED][0].fields.get(b"data", b""), self._id or "")
        result = function_of(call, self._id or "")(*call.args, **call.kwargs)
        return self.run_coroutine(result) if inspect.iscoroutine(result) else result
