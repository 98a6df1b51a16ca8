"""RQ's queue without I/O at its making: it finds its connection and full name when it is used."""

from __future__ import annotations

from typing import Any, Final, cast

import rq.queue
from redis import Redis
from rq.timeouts import UnixSignalDeathPenalty

from envq.code.serializer import serializer as envq_serializer
from envq.driver.client import Client, client_for, default_client, use_if_first
from envq.jobs.inline_job import InlineJob
from envq.jobs.job import Job
from envq.jobs.time_limit import limit_seconds, whole_seconds
from envq.names import valid_queue_name
from envq.store.connection import check_client

DEFAULT_TIMEOUT_S: Final = 180.0
_OLDEST_SERVER: Final = (6, 2, 0)


class _JobClass:
    """envq's job, or the class given; RQ's class methods (``dequeue_any``) read it from the queue's class."""

    def __get__(self, queue: LateQueue | None, _owner: type[LateQueue]) -> type[Job[Any]]:
        if queue is None:
            return Job
        if queue.client.jobs_here is not None:
            return InlineJob
        return vars(queue).get("job_class", Job)

    def __set__(self, queue: LateQueue, job_class: type[Job[Any]]) -> None:
        vars(queue)["job_class"] = job_class


class LateQueue(rq.queue.Queue):
    """
    RQ sets connection and key when a queue is made. Here they are looked up when it is used, so that a module can
    make its queues before anybody has connected.
    """

    def __init__(  # noqa: PLR0913 - RQ's signature
        self,
        name: str = "default",
        connection: Redis | None = None,
        default_timeout: float | str | None = None,
        is_async: bool = True,
        job_class: type[Job[Any]] | str | None = None,
        serializer: Any = None,
        death_penalty_class: Any = UnixSignalDeathPenalty,
        *,
        client: Client | None = None,
        **kwargs: Any,
    ) -> None:
        self._client = client if connection is None else _client_of(connection)
        self._patterns: dict[Any, Any] = {}
        self._default_limit = DEFAULT_TIMEOUT_S if default_timeout is None else limit_seconds(default_timeout)
        super().__init__(
            name=valid_queue_name(name),
            connection=cast(Redis, self),  # not looked at: RQ only asks whether there is one
            default_timeout=whole_seconds(self._default_limit),
            is_async=is_async,
            job_class=job_class,
            serializer=envq_serializer if serializer is None else serializer,
            death_penalty_class=death_penalty_class,
            **kwargs,
        )

    @property
    def client(self) -> Client:
        """The client it works with; connects where that is the default one. Pending declarations are published."""
        if self._client is None:
            return default_client()
        use_if_first(self._client)
        return self._client

    @property
    def connection(self) -> Redis:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The client's connection."""
        return self.client.connection

    @connection.setter
    def connection(self, connection: object) -> None: ...

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The name RQ knows it by, with the namespace."""
        keys = self.client.keys
        prefix = keys.queue_name("")
        return self._given_name if self._given_name.startswith(prefix) else prefix + self._given_name

    @name.setter
    def name(self, name: str) -> None:
        self._given_name = name

    @property
    def _key(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return f"{self.redis_queue_namespace_prefix}{self.name}"

    @_key.setter
    def _key(self, key: object) -> None: ...

    job_class = _JobClass()  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"Queue({self._given_name!r})"

    def get_redis_server_version(self) -> tuple[int, int, int]:
        """No older server is worked with, and RQ needs no more to know; saves asking."""
        return _OLDEST_SERVER


def _client_of(connection: Redis) -> Client:
    check_client(connection)
    return client_for(connection)
