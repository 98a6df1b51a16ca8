"""The supervisor's connection to Redis: bounded in time, outages told once, tried again later."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, Final, cast

from redis import Redis, RedisError

from envq.store.connection import connection_options, explain, worker_client
from envq.workers.lease import Lease
from envq.workers.outage import Outage
from envq.workers.supervision.backoff import Backoff

ANSWER_WITHIN_S: Final = 3.0  # a server that is silent for longer must not hold up signals and time limits
LONGEST_PAUSE_S: Final = 5.0


class Link:
    """A client, and what is known of the contact with its server."""

    def __init__(self, url: str, lease: Lease) -> None:
        patience_s = lease.at_most(ANSWER_WITHIN_S)
        self.client: Redis = worker_client(url, patience_s)
        connection_options(self.client)["socket_connect_timeout"] = patience_s
        self.up = False
        self._url = url
        self._backoff = Backoff(0.1, lease.at_most(LONGEST_PAUSE_S))
        self._gap_s = lease.gap_s  # contact was interrupted, whoever's fault it was
        self._retry_at = 0.0
        self._outage = Outage()
        # By the wall clock: it also shows that the machine was asleep, and any jump only makes us wait.
        self._contact_since = 0.0
        self._last_contact = 0.0

    @property
    def due(self) -> bool:
        """Worth trying: no outage, or the pause after the last failure is over."""
        return self.up or time.monotonic() >= self._retry_at

    @property
    def retry_at(self) -> float | None:
        """When to try again, by the monotonic clock; None while the server answers."""
        return None if self.up else self._retry_at

    @property
    def contact_s(self) -> float:
        """For how long contact has been uninterrupted."""
        return time.time() - self._contact_since if self.up else 0.0

    def exchange(self, talk: Callable[[Redis], None]) -> None:
        """Talk to the server; a failure of the server ends the talk and is remembered."""
        try:
            if not self.up:
                cast(Any, self.client).ping()
            talk(self.client)
        except (RedisError, ConnectionError, TimeoutError) as error:
            self._lost(error)
        else:
            self._back()

    def answered(self) -> None:
        """The server was heard just now."""
        now = time.time()
        if not 0 <= now - self._last_contact <= self._gap_s:
            self._contact_since = now
        self._last_contact = now

    def forget(self) -> None:
        """In a forked child: close the copies of the sockets, without a word to the server."""
        # Connections know by the process id that they are copies, and then only close.
        pool = cast(Any, self.client).connection_pool
        for connection in (*pool._available_connections, *pool._in_use_connections):
            connection.disconnect()

    def close(self) -> None:
        """Close all connections."""
        with contextlib.suppress(RedisError, OSError):
            self.client.close()

    def _back(self) -> None:
        if self.up:
            return
        self._outage.over()
        self.up = True
        self._contact_since = self._last_contact = time.time()
        self._backoff.reset()

    def _lost(self, error: RedisError | OSError) -> None:
        self.up = False
        self._retry_at = time.monotonic() + self._backoff.next()
        why = str(explain(error, self._url)).removesuffix("?")
        self._outage.tell("%s; running jobs go on, and it is tried again", why)
