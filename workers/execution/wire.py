"""The connection an executor claims and stores through: scripts sent together, nothing ever repeated by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import redis
from redis import Redis
from redis.exceptions import NoScriptError

from envq.store.exchange import ScriptCall
from envq.workers.execution.claims import Readable, readable

UNBLOCK_S: Final = 0.2


class Wire:
    """One connection, made at the first use. After an error what is half read is dropped with it."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._pool: Any = cast(Any, client).connection_pool
        self._connection: Any = None
        self._id = 0
        self._sent: Sequence[ScriptCall] = ()
        self._blocks = False  # a command that blocks was sent before them

    def send(self, *calls: ScriptCall, behind: tuple[Any, ...] | None = None) -> None:
        """
        Send, and let the server work meanwhile.

        Args:
            behind: a command that blocks; the server comes to the calls at once when it ends
        """
        commands = [call.by_digest() for call in calls]
        self._write([behind, *commands] if behind else commands)
        self._sent, self._blocks = calls, behind is not None

    def wait(self, wake: Sequence[Readable], timeout_s: float) -> None:
        """
        Until what blocks has ended, or one of ``wake`` can be read: then it is ended.

        Raises redis.ResponseError where the user may not do that, and redis-py's errors for a lost connection.
        """
        ready = readable([self, *wake], timeout_s + UNBLOCK_S)
        while self not in ready:
            # An unblock before the block begins is lost: again, until it has answered.
            cast(Any, self._client).client_unblock(self._id)
            ready = readable([self], UNBLOCK_S)

    def fileno(self) -> int:
        """Of the socket."""
        return cast(int, self._connection._sock.fileno())

    def receive(self) -> list[Any]:
        """The replies to what was sent; raises what redis-py raises for a lost connection."""
        calls, self._sent = self._sent, ()
        blocked = self._read() if self._blocks else None
        self._blocks = False
        replies = [self._read() for _ in calls]
        if isinstance(blocked, redis.ResponseError):
            raise blocked
        for at, reply in enumerate(replies):
            # Nothing of it has happened: a restarted server has forgotten the script.
            if isinstance(reply, NoScriptError):
                self._write([calls[at].in_full()])
                replies[at] = self._read()
        return replies

    def close(self) -> None:
        """Drop the connection, and what was not read."""
        self._sent, self._blocks = (), False
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def _write(self, commands: list[tuple[Any, ...]]) -> None:
        try:
            if self._connection is None:
                connection: Any = self._pool.connection_class(**self._pool.connection_kwargs)
                connection.connect()
                self._connection = connection
                connection.send_command("CLIENT", "ID")
                self._id = int(connection.read_response())
            # In one piece: the server then finds the second script behind the first, and answers both at once.
            packed = b"".join(part for command in commands for part in self._connection.pack_command(*command))
            self._connection.send_packed_command([packed])
        except BaseException:
            self.close()
            raise

    def _read(self) -> Any:
        try:
            return self._connection.read_response()
        except redis.ResponseError as error:
            return error
        except BaseException:
            self.close()
            raise
