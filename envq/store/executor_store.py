"""What executors say of themselves in Redis, for tools and for ``wait_ready``."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, cast

from redis import Redis

from envq.store.connection import is_about_the_data
from envq.store.keys import Keys
from envq.store.records import ExecutorInfo, MemoryState, VariableState
from envq.store.scripts import EXECUTOR_TTL_S

_VARIABLE: Final = "variable:"

log = logging.getLogger("envq")


@dataclass(frozen=True)
class ExecutorView:
    """One executor as tools see it."""

    info: ExecutorInfo
    state: str  # starting, building, idle, busy, waiting (for a required variable), suspended
    generation: str
    variables: dict[str, VariableState]
    memory: MemoryState = field(default_factory=MemoryState)


class ExecutorStore:
    """Writes one executor's hash, reads all of them."""

    def __init__(self, connection: Redis, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys

    def write(
        self,
        info: ExecutorInfo,
        state: str,
        generation: str,
        variables: list[VariableState],
        memory: MemoryState,
    ) -> None:
        """Replace the whole hash; it lives a minute past the supervisor's last heartbeat."""
        key = self._keys.executor(info.name)
        mapping = {"info": info.to_json(), "state": state, "generation": generation, "memory": memory.to_json()}
        mapping |= {_VARIABLE + variable.name: variable.to_json() for variable in variables}
        with self._connection.pipeline(transaction=True) as pipeline:
            pipeline.delete(key)
            pipeline.hset(key, mapping=cast(Any, mapping))
            pipeline.expire(key, EXECUTOR_TTL_S)
            pipeline.execute()

    def remove(self, name: str) -> None:
        """Forget an executor that is gone."""
        with self._connection.pipeline(transaction=True) as pipeline:
            pipeline.delete(self._keys.executor(name))
            pipeline.zrem(self._keys.executors, name)
            pipeline.execute()

    def all(self) -> list[ExecutorView]:
        """All executors alive, by name; two round trips. Records that nobody can read are left out with a warning."""
        members = cast(list[bytes], cast(Any, self._connection).zrange(self._keys.executors, 0, -1))
        names = sorted(name.decode(errors="replace") for name in members)
        with self._connection.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.hgetall(self._keys.executor(name))
            hashes = cast(list[dict[bytes, bytes] | Exception], pipeline.execute(raise_on_error=False))
        return list(_readable(names, hashes))


def _readable(names: list[str], hashes: list[dict[bytes, bytes] | Exception]) -> Iterator[ExecutorView]:
    for name, fields in zip(names, hashes, strict=True):
        if isinstance(fields, Exception) and not is_about_the_data(fields):
            raise fields
        try:
            if isinstance(fields, Exception):
                raise ValueError(str(fields))
            if b"info" in fields:
                yield _view(fields)
        except ValueError as error:
            log.warning("what executor %s says of itself cannot be read and is left out: %s", name, error)


def _view(fields: dict[bytes, bytes]) -> ExecutorView:
    variables = [VariableState.from_json(text) for name, text in fields.items() if name.startswith(_VARIABLE.encode())]
    return ExecutorView(
        ExecutorInfo.from_json(fields[b"info"]),
        fields.get(b"state", b"").decode(errors="replace"),
        fields.get(b"generation", b"").decode(errors="replace"),
        {variable.name: variable for variable in variables},
        MemoryState.from_json(fields.get(b"memory", b"{}")),
    )
