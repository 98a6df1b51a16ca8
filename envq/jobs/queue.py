"""RQ's queue, taking any callable: what a worker cannot import travels once, as code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, cast

from redis.client import Pipeline
from rq.job import JobStatus, Retry
from rq.queue import EnqueueData

from envq.clock import utc_now
from envq.code.payload import Blob
from envq.code.serializer import serializer as envq_serializer
from envq.code.signing import job_keys
from envq.driver.client import Client
from envq.jobs.callbacks import checked_callback
from envq.jobs.calls import Call, Function, call_data, call_of, function_of, sharing_functions
from envq.jobs.enqueue_once import enqueue_once, enqueue_unique
from envq.jobs.enqueue_options import (
    are_alike,
    check_lives,
    code_life_s,
    expanded,
    extra_life_s,
    options_of,
    split_call,
)
from envq.jobs.fast_enqueue import Pattern, Place
from envq.jobs.inline_job import keep_scheduled, run_inline
from envq.jobs.job import Job
from envq.jobs.late_queue import LateQueue
from envq.jobs.time_limit import limit_seconds, whole_seconds
from envq.store.keys import QUEUES
from envq.store.scripts import DeclarationsForgotten

BULK: Final = 500  # jobs a round trip, or less
BULK_BYTES: Final = 1024 * 1024  # of pickled calls, at which a round trip ends
PATTERNS_KEPT: Final = 128
_NEEDS_RQ: Final = frozenset(("depends_on", "rate_limit", "job_id", "group_id"))
_CONSTANTS: Final = frozenset((int, float, str, bool, Retry, type(None)))


class Queue(LateQueue):
    """
    A queue of the client's namespace. Making one does no I/O.

    Args:
        name: without the namespace, which is added in what RQ sees
        connection: None for the default client's, whichever that is when the queue is used
        default_timeout: seconds for jobs that name none, also as RQ writes it ("2m"); -1 for no limit
        is_async: False runs jobs at once in this process, on variables apart from the driver's
        client: in place of a connection
    """

    def create_job(  # pyright: ignore[reportIncompatibleMethodOverride] - RQ's options by keyword only
        self,
        func: Callable[..., Any] | str,
        args: Sequence[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
        timeout: float | str | None = None,
        **options: Any,
    ) -> Job[Any]:
        """
        A job that is not enqueued yet; code that has to travel is in Redis when this returns.

        Raises PayloadError for what cannot travel, ConfigurationError for a callback no worker can import.
        """
        client = self.client
        client.look_again()
        function = function_of(func, client.settings.limits)
        if function.blob is not None and client.jobs_here is None:
            client.code.ensure(function.blob, for_s=extra_life_s(options.get("failure_ttl")))
        call = call_of(function, tuple(args or ()), dict(kwargs or {}), client.settings.limits)
        limit = self._default_limit if timeout is None else limit_seconds(timeout)
        job = self._record(function, call, limit, options)
        if client.jobs_here is not None or not self.is_async:
            job.data = job.data  # a job that runs here gets copies of its arguments, as it would on a worker
            job.function_here = None if function.is_object or isinstance(func, str) else func
        return job

    def enqueue_call(  # noqa: PLR0913  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        func: Callable[..., Any] | str,
        args: Sequence[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
        timeout: float | str | None = None,
        *,
        at_front: bool = False,
        pipeline: Pipeline | None = None,
        unique: bool = False,
        **options: Any,
    ) -> Job[Any]:
        """Enqueue a call of ``func``; ``options`` are RQ's, and envq's ``on_crash`` and ``seed``."""
        if unique and not options.get("job_id"):
            raise ValueError("unique=True requires an explicit job_id")
        if pipeline is None and self._is_simple(options):
            client = self.client
            function = function_of(func, client.settings.limits)
            data = call_data(function, tuple(args or ()), kwargs or {}, client.settings.limits)
            pattern = self._pattern(client, function, timeout, options, at_front=at_front)
            return self._push(client, function, pattern, [data])[0]
        job = self.create_job(func, args, kwargs, timeout, **options)
        return self.enqueue_job(job, pipeline=pipeline, at_front=at_front, unique=unique)

    def enqueue(self, f: Callable[..., Any] | str, *args: Any, **kwargs: Any) -> Job[Any]:
        """Enqueue ``f(*args, **kwargs)``; RQ's options stand among the keywords, ``job_timeout`` for the limit."""
        args, kwargs, timeout, options = split_call(args, kwargs)
        return self.enqueue_call(f, args, kwargs, timeout, **options)

    def enqueue_at(self, datetime: datetime, f: Callable[..., Any] | str, *args: Any, **kwargs: Any) -> Job[Any]:
        """Enqueue at that time, to the second; a time without a zone is local. Needs a scheduler to run."""
        args, kwargs, timeout, options = split_call(args, kwargs)
        return self.schedule_call(datetime, f, args, kwargs, timeout, **options)

    def schedule_call(  # noqa: PLR0913 - enqueue_call and a time
        self,
        when: datetime,
        func: Callable[..., Any] | str,
        args: Sequence[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
        timeout: float | str | None = None,
        *,
        at_front: bool = False,
        pipeline: Pipeline | None = None,
        unique: bool = False,
        **options: Any,
    ) -> Job[Any]:
        """Like enqueue_call, at a time."""
        job = self.create_job(func, args, kwargs, timeout, status=JobStatus.SCHEDULED, **options)
        if at_front:
            job.enqueue_at_front = True
        return self.schedule_job(job, when, pipeline=pipeline, unique=unique)

    def schedule_job(
        self, job: Any, datetime: datetime, pipeline: Pipeline | None = None, unique: bool = False
    ) -> Job[Any]:
        """Put a job on the schedule; its code is kept until then."""
        client = self.client
        if client.jobs_here is not None:
            return keep_scheduled(job, client.jobs_here)
        if getattr(job, "code_digest", ""):
            client.code.renew(job.code_digest, for_s=max(0, round(datetime.timestamp() - utc_now().timestamp())))
        return cast(Job[Any], super().schedule_job(job, datetime, pipeline=pipeline, unique=unique))

    def enqueue_job(
        self, job: Any, pipeline: Pipeline | None = None, at_front: bool = False, unique: bool = False
    ) -> Job[Any]:
        """Enqueue a job that was created before."""
        client = self.client
        if client.jobs_here is not None:
            return run_inline(job, client.inline, client.jobs_here)
        enqueue = partial(super().enqueue_job, job, pipeline=pipeline, at_front=at_front, unique=unique)
        if pipeline is None and self.is_async:
            once = enqueue_unique if unique else enqueue_once
            return once(client.connection, job, cast(Any, enqueue))
        return cast(Job[Any], enqueue())

    def enqueue_many(
        self, job_datas: Iterable[EnqueueData], pipeline: Pipeline | None = None, group_id: str | None = None
    ) -> list[Any]:
        """
        Enqueue what prepare_data made; code that travels is sent once.

        Calls of one function with the same options go in bulk as with ``enqueue_calls``, others in one transaction.
        """
        datas = cast(list[Any], list(job_datas))
        with sharing_functions():
            if self.client.jobs_here is not None:
                return [self.enqueue_call(**data._asdict(), group_id=group_id) for data in datas]
            if pipeline is None and not group_id and datas and are_alike(datas):
                options = options_of(datas[0])
                if self._is_simple(options):
                    first = datas[0]
                    calls: Iterable[Any] = ((tuple(data.args or ()), data.kwargs or {}) for data in datas)
                    return self._enqueue(first.func, calls, first.timeout, options, at_front=first.at_front)
            return super().enqueue_many(datas, pipeline=pipeline, group_id=group_id)

    def enqueue_calls(
        self,
        func: Callable[..., Any] | str,
        arguments: Iterable[tuple[Any, ...]],
        timeout: float | str | None = None,
        *,
        at_front: bool = False,
        **options: Any,
    ) -> list[Job[Any]]:
        """Enqueue one call for each tuple of arguments, in order, BULK a round trip; options as for enqueue_call."""
        with sharing_functions():
            if self._is_simple(options):
                none: dict[str, Any] = {}
                calls = ((args, none) for args in arguments)
                return self._enqueue(func, calls, timeout, options, at_front=at_front)
            return [self.enqueue_call(func, args, None, timeout, at_front=at_front, **options) for args in arguments]

    def run_job(self, job: Any) -> Job[Any]:
        """Run a job in this process (is_async=False); its variables are reset once its result is stored."""
        with self.client.inline.job(job.id):
            return cast(Job[Any], super().run_job(job))

    def _is_simple(self, options: dict[str, Any]) -> bool:
        """Whether it takes no more than to write the record and push the id."""
        if not self.is_async or self.serializer is not envq_serializer or self.client.jobs_here is not None:
            return False
        return _NEEDS_RQ.isdisjoint(options) or not any(map(options.get, _NEEDS_RQ))

    def _enqueue(
        self,
        func: Callable[..., Any] | str,
        calls: Iterable[tuple[tuple[Any, ...], dict[str, Any]]],
        timeout: float | str | None,
        options: dict[str, Any],
        *,
        at_front: bool,
    ) -> list[Job[Any]]:
        client = self.client
        limits = client.settings.limits
        function = function_of(func, limits)
        pattern: Pattern | None = None
        jobs: list[Job[Any]] = []
        for chunk in _chunks(call_data(function, args, kwargs, limits) for args, kwargs in calls):
            pattern = pattern or self._pattern(client, function, timeout, options, at_front=at_front)
            jobs += self._push(client, function, pattern, chunk)
        return jobs

    def _push(self, client: Client, function: Function, pattern: Pattern, calls: list[bytes]) -> list[Job[Any]]:
        while True:
            try:
                jobs = pattern.push(calls, client.scope.generation_of(client))
            except DeclarationsForgotten:
                client.scope.publish_again(client)
                continue
            if jobs is not None:
                return jobs
            client.code.ensure(cast(Blob, function.blob))

    def _pattern(
        self,
        client: Client,
        function: Function,
        timeout: float | str | None,
        options: dict[str, Any],
        *,
        at_front: bool,
    ) -> Pattern:
        """Made once for the same function, place and options, as far as those cannot change."""
        for value in options.values():
            if type(value) not in _CONSTANTS:
                return self._new_pattern(client, function, timeout, options, at_front=at_front)
        digest = function.blob.header.digest if function.blob else ""
        key = (client, self._given_name, function.name, digest, timeout, at_front, frozenset(options.items()))
        pattern = self._patterns.get(key)
        if pattern is None:
            pattern = self._new_pattern(client, function, timeout, options, at_front=at_front)
            if len(self._patterns) >= PATTERNS_KEPT:
                self._patterns.clear()
            self._patterns[key] = pattern
        return pattern

    def _new_pattern(
        self,
        client: Client,
        function: Function,
        timeout: float | str | None,
        options: dict[str, Any],
        *,
        at_front: bool,
    ) -> Pattern:
        limit = self._default_limit if timeout is None else limit_seconds(timeout)
        job = self._record(function, Call("", None, (), {}), limit, dict(options))
        self._prepare_for_queue(job)
        if function.blob is None:
            return Pattern(job, Place((self.key, QUEUES, client.keys.generation), at_front))
        if job_keys():
            client.code.ensure(function.blob)
        code_key = client.keys.code(function.blob.header.digest)
        keys = (self.key, QUEUES, client.keys.generation, code_key)
        return Pattern(job, Place(keys, at_front, code_life_s(options.get("failure_ttl"))))

    def _record(self, function: Function, call: Call, limit: float | None, options: dict[str, Any]) -> Job[Any]:
        check_lives(options)
        on_crash = options.pop("on_crash", "requeue")
        seed = options.pop("seed", None)
        for option in ("on_success", "on_failure", "on_stopped"):
            options[option] = checked_callback(option, options.get(option))
        options["retry"] = expanded(options.get("retry"))
        options["description"] = options.get("description") or function.name  # never the arguments
        made = super().create_job(cast(Any, call.func_name), call.args, call.kwargs, whole_seconds(limit), **options)
        job = cast(Job[Any], made)
        job.instance = call.instance
        job.time_limit = limit
        job.on_crash, job.seed = on_crash, seed
        job.code_digest = function.blob.header.digest if function.blob else ""
        return job


def _chunks(calls: Iterable[bytes]) -> Iterator[list[bytes]]:
    """As many as make a round trip worth while, by number and by bytes: what is built and sent at once stays small."""
    chunk: list[bytes] = []
    size = 0
    for data in calls:
        chunk.append(data)
        size += len(data)
        if len(chunk) >= BULK or size >= BULK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
