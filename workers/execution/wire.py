"""The connection an executor claims and stores through: scripts sent together, nothing ever repeated by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import redis
from redis import Redis
from redis.exceptions import NoScriptError

from envq.store.exchange import ScriptCall

ANSWER_WITHIN_S: Final = 15.0  # a network that swallows packets must not hold an executor for as long as TCP would


class Wire:
    """One connection, made at the first use. After an error what is half read is dropped with it."""

    def __init__(self, client: Redis) -> None:
        self._pool: Any = cast(Any, client).connection_pool
        self._connection: Any = None
        self._sent: Sequence[ScriptCall] = ()

    @property
    def waiting(self) -> bool:
        """Calls were sent whose replies are not read yet."""
        return bool(self._sent)

    def call(self, *calls: ScriptCall) -> list[Any]:
        """Send and read the replies, one round trip; a ResponseError stands among them."""
        self.send(*calls)
        return self.receive()

    def send(self, *calls: ScriptCall) -> None:
        """Send, and let the server work meanwhile."""
        self._write([call.by_digest() for call in calls])
        self._sent = calls

    def receive(self) -> list[Any]:
        """The replies to what was sent; raises what redis-py raises for a lost connection."""
        calls, self._sent = self._sent, ()
        replies = [self._read() for _ in calls]
        for at, reply in enumerate(replies):
            # Nothing of it has happened: a restarted server has forgotten the script.
            if isinstance(reply, NoScriptError):
                self._write([calls[at].in_full()])
                replies[at] = self._read()
        return replies

    def close(self) -> None:
        """Drop the connection, and what was not read."""
        self._sent = ()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def _write(self, commands: list[tuple[Any, ...]]) -> None:
        try:
            if self._connection is None:
                options = {"socket_timeout": ANSWER_WITHIN_S, **self._pool.connection_kwargs}
                connection: Any = self._pool.connection_class(**options)
                connection.connect()
                self._connection = connection
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
