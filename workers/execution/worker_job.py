"""The job as an executor runs it: RQ's job with our event loop, and errors that say what is missing here."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, cast

from redis.client import Pipeline
from rq.exceptions import DeserializationError
from rq.job import JobStatus

from envq.errors import PayloadError
from envq.jobs.job import Job


class WorkerJob(Job[Any]):
    """One claimed job. ``run_coroutine`` is the executor's lasting event loop."""

    run_coroutine: Callable[[Coroutine[Any, Any, Any]], Any]
    storing = False
    _meta_waits: bytes | None = None

    @property
    def title(self) -> str:
        """The function's name; stock clients put arguments behind it, which belong in no log."""
        return (self.description or "unknown").partition("(")[0]

    def restore_without_meta(self, fields: dict[bytes, bytes]) -> None:
        """
        Take over a stored hash, but for ``meta``, which RQ would unpickle at once.

        That runs code of users, which may end the process: not before the job has started, or nobody would be blamed.
        """
        self.restore({name: value for name, value in fields.items() if name != b"meta"})
        self._meta_waits = fields.get(b"meta") or None

    def load_meta(self) -> None:
        """Take over what was left out."""
        waits, self._meta_waits = self._meta_waits, None
        if waits is None:
            return
        try:
            self.meta = self.serializer.loads(waits)
        except Exception:  # noqa: BLE001 - as in RQ, which keeps what it cannot read
            self.meta, self._unreadable_meta = {"unserialized": waits}, waits

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
        try:
            return cast(Callable[..., Any] | None, super().func)
        except (ValueError, ImportError, AttributeError) as error:
            reason = _why_not_importable(str(self.func_name)) or str(error)
            raise PayloadError(
                f"this worker cannot import {self.func_name!r}: {reason}; install its module on the worker, "
                "start the worker with -P FOLDER, or call envq.ship(module) on the driver"
            ) from (None if isinstance(error, ValueError) else error)

    def _deserialize_data(self) -> None:
        try:
            super()._deserialize_data()
        except DeserializationError as error:
            cause = error.__cause__ or error
            raise PayloadError(
                f"the payload of job {self.id} cannot be unpickled on this worker ({type(cause).__name__}: {cause})"
            ) from cause

    def _execute(self) -> Any:
        function = self.func
        if function is None:
            raise PayloadError(f"job {self.id} names no function")
        result = function(*self.args, **self.kwargs)
        return self.run_coroutine(result) if inspect.iscoroutine(result) else result


def _why_not_importable(dotted: str) -> str:
    """The import error behind RQ's "Invalid attribute name"; "" where the module imports."""
    module = dotted.rpartition(".")[0]
    while module:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            parent = module.rpartition(".")[0]
            if error.name == module and parent:
                module = parent
                continue
            return str(error)
        except Exception as error:  # noqa: BLE001 - the user's module runs here
            return f"importing {module} raised {type(error).__name__}: {error}"
        return f"module {module} has no attribute {dotted.removeprefix(module).lstrip('.').split('.')[0]!r}"
    return ""
