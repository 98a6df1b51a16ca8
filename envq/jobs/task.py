"""``envq.task``: a function that can also be enqueued, with its own signature."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

import rq.queue
from rq.defaults import DEFAULT_RESULT_TTL
from rq.job import Retry

from envq.clock import utc_now
from envq.code.shipping import reference_of
from envq.jobs.job import Job, OnCrash
from envq.jobs.late_queue import DEFAULT_TIMEOUT_S
from envq.jobs.options import NAMES, JobOptions, checked
from envq.jobs.queue import Queue
from envq.jobs.time_limit import NO_LIMIT

LONGEST_DELAY_S: Final = 100 * 365 * 24 * 3600
SHAPES_KEPT: Final = 64  # of calls that fit the signature, per function and options

P = ParamSpec("P")
R = TypeVar("R")


class Enqueuing(Generic[P, R]):
    """Enqueues one function, with options of its own."""

    def __init__(self, function: Callable[..., Any], options: JobOptions) -> None:
        self._function = function
        self._options = options
        self._signature = _signature(function)
        self._accepted: set[tuple[Any, ...]] = set()
        self._call_options = {name: value for name, value in options.items() if name != "queue"}

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Have a worker call it; raises TypeError for arguments that it does not take."""
        self._check(args, kwargs)
        queue, options = self._queue()
        return queue.enqueue_call(self._function, args, kwargs, **options)

    def enqueue_in(self, delay: float | timedelta, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """The same after that many seconds; workers' schedulers look once a second."""
        return self.enqueue_at(utc_now() + _as_delay(delay), *args, **kwargs)

    def enqueue_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """The same at that time; a time without a zone is local."""
        if not isinstance(when, datetime):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise TypeError(f"enqueue_at takes a datetime first, then the arguments of the function, not {when!r}")
        self._check(args, kwargs)
        queue, options = self._queue()
        return queue.schedule_call(when, self._function, args, kwargs, **options)

    def map(self, items: Iterable[Any]) -> list[Job[R]]:
        """One job for each item, which is its only argument; in bulk, hundreds a round trip."""
        return self.starmap((item,) for item in items)

    def starmap(self, arguments: Iterable[tuple[Any, ...]]) -> list[Job[R]]:
        """One job for each tuple of positional arguments; in bulk."""
        queue, options = self._queue()
        return queue.enqueue_calls(self._function, self._checked(arguments), **options)

    def options(self, **options: Unpack[JobOptions]) -> Enqueuing[P, R]:
        """The same function with other options; ConfigurationError for an unknown one. ``timeout=None``: no limit."""
        return Enqueuing(self._function, cast(JobOptions, {**self._options, **_normal(options)}))

    def _queue(self) -> tuple[Queue, dict[str, Any]]:
        return _queue_of(self._options.get("queue", "default")), self._call_options

    def _check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # Only how many are positional and the names of the others can be wrong.
        shape = (len(args), *kwargs)
        if self._signature is None or shape in self._accepted:
            return
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            name = self._function.__qualname__
            options = [each for each in kwargs if each in NAMES and each not in self._signature.parameters]
            hint = f"; options of the job are given before: {name}.options({options[0]}=...)" if options else ""
            raise TypeError(f"{name}(): {error}{hint}") from None
        if len(self._accepted) < SHAPES_KEPT:
            self._accepted.add(shape)

    def _checked(self, arguments: Iterable[tuple[Any, ...]]) -> Iterable[tuple[Any, ...]]:
        lengths: set[int] = set()
        for each in arguments:
            if not isinstance(each, tuple | list):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
                raise TypeError(
                    f"starmap takes tuples of arguments, not {each!r:.80}; for one argument each there is map"
                )
            if len(each) not in lengths:  # all are positional, so that only their number can be wrong
                self._check(each, {})
                lengths.add(len(each))
            yield each


class Decorated(Enqueuing[P, R]):
    """What both kinds of task share: they look like their function, and travel like it."""

    def __init__(self, function: Callable[..., Any], options: JobOptions) -> None:
        super().__init__(function, options)
        functools.update_wrapper(cast(Any, self), function)

    def __envq_code__(self) -> Callable[..., Any]:
        return self._function

    def __reduce__(self) -> str | tuple[Any, ...]:
        if reference_of(self) is not None:
            return self._function.__qualname__
        return type(self), (self._function, self._options)

    def __repr__(self) -> str:
        return f"<task {self._function.__module__}.{self._function.__qualname__}>"


class Task(Decorated[P, R]):
    """A decorated function: called it runs here, enqueued it runs on a worker."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)


class AsyncTask(Decorated[P, R]):
    """A decorated coroutine function: called it gives a coroutine, the job's result is what that returns."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return self._function(*args, **kwargs)


class Decorator(Protocol):
    """``task`` with options, waiting for its function."""

    # A coroutine function is also a function that returns a coroutine; the first overload that fits is meant.
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # pyright: ignore[reportOverlappingOverload]
@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(
    *,
    queue: str = "default",
    timeout: float | None = DEFAULT_TIMEOUT_S,
    result_ttl: int = DEFAULT_RESULT_TTL,
    retry: Retry | int | None = None,
    on_crash: OnCrash = "requeue",
) -> Decorator: ...
def task(  # noqa: PLR0913 - the options of a task, by keyword
    function: Callable[..., Any] | None = None,
    /,
    *,
    queue: str = "default",
    timeout: float | None = DEFAULT_TIMEOUT_S,
    result_ttl: int = DEFAULT_RESULT_TTL,
    retry: Retry | int | None = None,
    on_crash: OnCrash = "requeue",
) -> Any:
    """
    Make a function a task. Does no I/O.

    Args:
        queue: where its jobs go
        timeout: seconds, fractions too; None for no limit
        result_ttl: seconds a result is kept; 0: not at all, -1: for ever
        retry: how often a job that raised runs again, a number or a Retry with intervals
        on_crash: what becomes of a job whose process died: "requeue" runs it again (at most 3 times), "fail" never
    """
    options = _normal(
        {"queue": queue, "timeout": timeout, "result_ttl": result_ttl, "retry": retry, "on_crash": on_crash}
    )

    def decorate(function: Callable[..., Any]) -> Any:
        if not inspect.isroutine(function):
            raise TypeError(f"envq.task decorates a function, not a {type(function).__name__}")
        kind: Any = AsyncTask if inspect.iscoroutinefunction(function) else Task
        return kind(function, options)

    return decorate if function is None else decorate(function)


_queues: dict[str, Queue] = {}


def _queue_of(queue: str | rq.queue.Queue) -> Queue:
    if isinstance(queue, Queue):
        return queue
    if isinstance(queue, str):
        return _queues.setdefault(queue, Queue(queue)) if queue not in _queues else _queues[queue]
    return Queue(queue.name, connection=queue.connection)


def _as_delay(delay: float | timedelta) -> timedelta:
    if isinstance(delay, timedelta):
        return delay
    if isinstance(delay, bool) or not isinstance(delay, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"enqueue_in takes seconds or a timedelta first, then the arguments of the function, not {delay!r}"
        )
    if not abs(delay) < LONGEST_DELAY_S:
        raise ValueError(f"enqueue_in takes at most {LONGEST_DELAY_S} seconds, not {delay!r}")
    return timedelta(seconds=delay)


def _normal(options: Mapping[str, Any]) -> JobOptions:
    """Checked; None for a timeout means no limit here, to RQ its default."""
    normal = checked(options)
    if normal.get("timeout", 0) is None:
        normal["timeout"] = NO_LIMIT
    return normal


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C have none
        return None
