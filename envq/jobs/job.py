"""A job as envq writes and reads it: RQ's record with a few fields beside it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, cast

import rq.job
from redis import Redis
from rq.exceptions import NoSuchJobError
from rq.job import JobStatus, parse_job_id

from envq.code.serializer import serializer as envq_serializer
from envq.code.signing import job_keys
from envq.driver.client import default_client
from envq.driver.coroutines import runner
from envq.errors import PayloadError
from envq.jobs.calls import Call, arguments_of
from envq.jobs.outcome import CheckedResult, Outcome, before, newest
from envq.jobs.signed import META_SIGNATURE, SIGNATURE, harmless, job_prefix, job_signature, meta_signature, refusal
from envq.jobs.time_limit import stored_limit, whole_seconds
from envq.store.keys import results as results_key

R = TypeVar("R")
OnCrash = Literal["requeue", "fail"]

FROM_START = "0-0"
_ENDED = frozenset({JobStatus.FINISHED, JobStatus.FAILED, JobStatus.STOPPED, JobStatus.CANCELED})


class Job(rq.job.Job, Generic[R]):
    """
    RQ's job, for a function that returns ``R``.

    The connection defaults to that of the process's client.

    Attributes:
        time_limit: seconds, None for no limit; ``timeout`` is RQ's, whole seconds rounded up, -1 for none
        on_crash: "fail" if it must never run twice
        seed: of ``random``, and numpy's where it is loaded; None for a fresh one
        code_digest: of the function's code where that travels by value, else ""
        result_after: position in the stream of results that ``envq.get`` waits behind
        function_here: the function itself, for a job that runs in this process
        outcome_here: how it ended where it ran in this process, else None
        refused: why its record must not be used, where records are signed, else ""; nothing of it is unpickled then
    """

    _pattern: dict[str, Any]

    def __init__(self, id: str | None = None, connection: Redis | None = None, serializer: Any = None) -> None:
        super().__init__(
            id,
            default_client().connection if connection is None else connection,
            envq_serializer if serializer is None else serializer,
        )
        self.on_crash: OnCrash = "requeue"
        self.seed: int | None = None
        self.code_digest = ""
        self.refused = ""
        self.result_after = FROM_START
        self.outcome_here: Outcome | None = None
        self.function_here: Callable[..., Any] | None = None
        self._exact_limit: float | None = None
        self._stored_data: object = None

    if not TYPE_CHECKING:  # a type checker would take any name for an attribute

        def __getattr__(self, name: str) -> Any:
            """Attributes of a job that was made from a pattern: they are filled in when one is first asked for."""
            pattern: dict[str, Any] = vars(self).get("_pattern", {})
            if name not in pattern:
                return super().__getattribute__(name)  # raises, for a property what it raised itself
            for each, value in own_attributes(pattern).items():  # what was set in the meantime stays
                vars(self).setdefault(each, value)
            return vars(self)[name]

    @classmethod
    def from_pattern(cls, pattern: dict[str, Any], job_id: str, data: bytes, created_at: datetime) -> Self:
        """A job that was enqueued, with the attributes in ``pattern`` besides; cheap until those are looked at."""
        job = object.__new__(cls)
        job._pattern = pattern
        job._id = job_id
        job._data = data
        job.created_at = job.enqueued_at = created_at
        return job

    @property
    def time_limit(self) -> float | None:
        """Seconds the function may take; None: no limit."""
        return stored_limit(self.timeout, self._exact_limit)

    @time_limit.setter
    def time_limit(self, limit: float | None) -> None:
        self.timeout = whole_seconds(limit)
        self._exact_limit = limit if limit != self.timeout else None

    @classmethod
    def fetch(cls, id: str, connection: Redis | None = None, serializer: Any = None) -> Self:
        """
        The stored job; rq.exceptions.NoSuchJobError where there is none.

        ``envq.get`` then gives the latest result of a job that has ended, and waits for the next one of a
        job that has not.
        """
        if connection is None and (jobs := default_client().jobs_here) is not None:
            if id not in jobs:
                raise NoSuchJobError(f"No such job: {id}")
            return jobs[id]
        job = cls(parse_job_id(id), connection=connection, serializer=serializer)
        job.refresh()
        return job

    def refresh(self) -> None:
        """Read the record again, and note where its results end."""
        with self.connection.pipeline(transaction=True) as pipeline:
            pipeline.hgetall(self.key)
            cast(Any, pipeline).xrevrange(results_key(self.id), count=1)
            fields, entries = pipeline.execute()
        if not fields:
            raise NoSuchJobError(f"No such job: {self.key}")
        self.restore(fields)
        self._note_position(newest(entries))

    def restore(self, raw_data: dict[bytes, bytes]) -> None:
        """Take over the fields of a stored hash; of one that is refused only what harms nobody."""
        self.refused = refusal(self.id, raw_data)
        if job_keys():
            raw_data = harmless(raw_data) if self.refused else {k: v for k, v in raw_data.items() if k != b"result"}
        super().restore(raw_data)
        limit = raw_data.get(b"envq_timeout")
        seed = raw_data.get(b"envq_seed")
        self._exact_limit = float(limit) if limit else None
        self.on_crash = "fail" if raw_data.get(b"envq_on_crash") == b"fail" else "requeue"
        self.seed = int(seed) if seed else None
        self.code_digest = raw_data.get(b"envq_code", b"").decode()
        self._stored_data = self._data

    def to_dict(self, include_meta: bool = True, include_result: bool = True) -> dict[str, Any]:
        """RQ's fields and envq's own; without the call itself where it is stored already."""
        fields = cast("dict[str, Any]", super().to_dict(include_meta=include_meta, include_result=include_result))
        if not include_result and self._data is self._stored_data:
            del fields["data"]  # the end of an execution would write the whole payload a second time
        return self._signed(fields | self.own_fields())

    def save_meta(self) -> None:
        """Store ``meta`` alone; atomic."""
        meta = cast(Any, self)._serialize_meta()
        fields: dict[str, Any] = {"meta": meta}
        if job_keys():
            self._require_signature()
            fields[META_SIGNATURE] = meta_signature(self.id, meta)
        cast(Any, self.connection).hset(self.key, mapping=fields)

    def latest_result(self, timeout: int = 0) -> Any:
        """As in RQ; raises PayloadError for a result whose signature is missing or wrong, where they are signed."""
        return CheckedResult.fetch_latest(self, serializer=self.serializer, timeout=timeout)

    def results(self) -> list[Any]:
        """As in RQ; raises PayloadError as ``latest_result`` does."""
        return cast("list[Any]", CheckedResult.all(self, serializer=self.serializer))

    def own_fields(self) -> dict[str, str | float | int]:
        """What envq adds to RQ's hash; nothing for a job with RQ's own options."""
        fields: dict[str, str | float | int | None] = {
            "envq_timeout": self._exact_limit,
            "envq_on_crash": "fail" if self.on_crash == "fail" else None,
            "envq_seed": self.seed,
            "envq_code": self.code_digest or None,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def requeue(self, at_front: bool = False) -> Self:
        """Run a failed job again; ``envq.get`` then waits for the new result."""
        with self.connection.pipeline(transaction=False) as pipeline:
            cast(Any, pipeline).xrevrange(results_key(self.id), count=1)
            (entries,) = pipeline.execute()
        self.result_after = newest(entries) or FROM_START
        self.outcome_here = None
        super().requeue(at_front=at_front)
        return self

    def _signed(self, fields: dict[str, Any]) -> dict[str, Any]:
        if self.refused:  # what is stored stays as it is, and gets no signature from us
            return {name: value for name, value in fields.items() if name not in ("data", "meta")}
        if job_keys():
            fields[SIGNATURE] = job_signature(job_prefix(fields), self.id, self.data)
            if "meta" in fields:
                fields[META_SIGNATURE] = meta_signature(self.id, fields["meta"])
        return fields

    def _require_signature(self) -> None:
        if self.refused:
            raise PayloadError(self.refused)

    def _deserialize_data(self) -> None:
        self._require_signature()
        super()._deserialize_data()

    def _execute(self) -> Any:
        function, args, kwargs = self.function_here, tuple(cast("tuple[Any, ...]", self.args)), self.kwargs
        if function is None:
            function = cast("Callable[..., Any]", self.func)
        else:
            args, kwargs = arguments_of(Call(cast(str, self.func_name), None, args, kwargs))
        result = function(*args, **kwargs)
        if inspect.iscoroutine(result):
            result = runner.run(result)
        if self.function_here is not None:
            envq_serializer.result(
                result, self.description or "the job"
            )  # RQ stores a text in place of a result that cannot be pickled
        return result

    def __eq__(self, other: object) -> bool:
        # RQ's registries and groups give objects of RQ's class.
        return isinstance(other, rq.job.Job) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        # Not func_name: showing a job must not unpickle it.
        return f"Job({self.id!r}, {self.description or 'unknown'}, {self._status.value})"

    def _note_position(self, last: str | None) -> None:
        if last is None:
            self.result_after = FROM_START
        else:
            self.result_after = before(last) if self._status in _ENDED else last


def own_attributes(pattern: dict[str, Any]) -> dict[str, Any]:
    """The attributes for one more job, which shares nothing with others that can be changed in place."""
    return {name: value.copy() if type(value) in (dict, list) else value for name, value in pattern.items()}
