"""Claims: how an executor waits for jobs and gives them back.

The claims list in Redis is the truth about who runs what. Ids are only ever moved into it; a reply that is
lost is settled by the next claim, which returns whatever lies there unknown.
"""

from __future__ import annotations

import logging
import select
from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

import redis
from redis import Redis

from envq.store import keys as rq
from envq.store import scripts
from envq.store.connection import REDIS_ERRORS
from envq.store.keys import Keys

log = logging.getLogger("envq.worker")

REPLY_TIMEOUT_S: Final = 5.0
POLL_S: Final = 2.0  # no wait is longer: a missed announcement or a cut connection is noticed after so long


class Readable(Protocol):
    """Anything select() takes."""

    def fileno(self) -> int: ...


class Claims:
    """One executor's claims."""

    def __init__(self, connection: Redis, keys: Keys, executor: str) -> None:
        self._connection = connection
        self._keys = keys
        self._executor = executor
        self._waits: list[_Wait] = []

    def hand_back(self) -> None:
        """Put every claim back to the front of its queue; none of them has run."""
        scripts.release(self._connection, self._keys, self._executor, running="", why="handback", dead=False)

    def wait(self, queue_names: Sequence[str], wake: Sequence[Readable], timeout_s: float) -> None:
        """
        Block until a job was moved into the claims, one of ``wake`` is readable, or the time is over.

        One blocking move per queue, each on a connection of its own: whichever queue gets a job first wakes
        us, and no id is ever popped without having a place. Connection errors come through.
        """
        try:
            self._wait(queue_names, wake, timeout_s)
        except REDIS_ERRORS:
            self.close()
            raise

    def close(self) -> None:
        """Drop the waiting connections."""
        for wait in self._waits:
            wait.close()
        self._waits.clear()

    def _wait(self, queue_names: Sequence[str], wake: Sequence[Readable], timeout_s: float) -> None:
        while len(self._waits) < len(queue_names):
            self._waits.append(_Wait(self._connection))
        claims = self._keys.claims(self._executor)
        pending = self._waits[: len(queue_names)]
        for wait, name in zip(pending, queue_names, strict=True):
            wait.begin(rq.queue(name), claims, timeout_s)
        # The server ends the moves in time; where there are none, nobody does but we.
        ready = readable([*pending, *wake], timeout_s + REPLY_TIMEOUT_S if pending else timeout_s)
        answered = [wait for wait in pending if wait in ready]
        for wait in answered:
            wait.end()
        self._cancel([wait for wait in pending if wait not in ready])

    def _cancel(self, pending: list[_Wait]) -> None:
        """End moves that still block. An id that arrives meanwhile is in the claims, so nothing is lost."""
        if not pending:
            return
        try:
            with self._connection.pipeline(transaction=False) as pipeline:
                for wait in pending:
                    cast(Any, pipeline).client_unblock(wait.client_id)
                pipeline.execute()
        except redis.ResponseError:  # an ACL without CLIENT UNBLOCK: a closed connection ends the move as well
            for wait in pending:
                wait.close()
                self._waits.remove(wait)
            return
        for wait in pending:
            wait.end()


class _Wait:
    """One connection that can block on one queue."""

    def __init__(self, client: Redis) -> None:
        pool: Any = cast(Any, client).connection_pool
        self._connection: Any = pool.connection_class(**pool.connection_kwargs)
        self._connection.connect()
        self._connection.send_command("CLIENT", "ID")
        self.client_id = int(self._connection.read_response())

    def fileno(self) -> int:
        return cast(int, self._connection._sock.fileno())

    def begin(self, queue_key: str, claims: str, timeout_s: float) -> None:
        self._connection.send_command("BLMOVE", queue_key, claims, "LEFT", "RIGHT", timeout_s)

    def end(self) -> None:
        self._connection._sock.settimeout(REPLY_TIMEOUT_S)
        self._connection.read_response()

    def close(self) -> None:
        self._connection.disconnect()


def readable(readables: Sequence[Readable], timeout_s: float) -> list[Readable]:
    """Those that can be read, as soon as one can, or after so many seconds."""
    poll = select.poll()
    by_fd = {readable.fileno(): readable for readable in readables}
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    return [by_fd[fd] for fd, _ in poll.poll(timeout_s * 1000)]
