"""A pub/sub connection inside a selector loop: never waits, subscribes again by itself, says so."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any, Final, cast

from redis import Redis, RedisError

from envq.workers.supervision.backoff import Backoff

PING_EVERY_S: Final = 5.0
SILENT_AFTER_S: Final = 16.0  # three pings without an answer: the network swallowed the connection
LONGEST_PAUSE_S: Final = 5.0

log = logging.getLogger("envq.worker")


class Subscription:
    """Channels we want to hear, whatever happens to the connection."""

    def __init__(
        self,
        connection: Redis,
        selector: selectors.BaseSelector,
        *,
        on_message: Callable[[str, bytes], None],
        on_subscribed: Callable[[], None],
    ) -> None:
        """``on_subscribed`` is called after each new subscription: what came before it was missed."""
        self._client = connection
        self._selector = selector
        self._on_message = on_message
        self._on_subscribed = on_subscribed
        self._channels: set[str] = set()
        self._pubsub: Any = None
        self._socket: socket.socket | None = None
        self._backoff = Backoff(0.1, LONGEST_PAUSE_S)
        self._retry_at = self._ping_at = self._heard_at = 0.0

    @property
    def retry_at(self) -> float | None:
        """When to subscribe again, by the monotonic clock; None while connected."""
        return self._retry_at if self._pubsub is None else None

    def add(self, channel: str) -> None:
        """Hear a channel from now on."""
        self._channels.add(channel)
        if self._pubsub is not None:
            self._guarded(lambda: self._pubsub.subscribe(channel))

    def drop(self, channel: str) -> None:
        """Hear a channel no more."""
        self._channels.discard(channel)
        if self._pubsub is not None:
            self._guarded(lambda: self._pubsub.unsubscribe(channel))

    def tend(self) -> None:
        """Connect if it is time to, and find out whether the connection still carries anything."""
        now = time.monotonic()
        if self._pubsub is None:
            if now >= self._retry_at and self._channels:
                self._guarded(self._connect)
        elif now - self._heard_at > SILENT_AFTER_S:
            self._lost("it is silent")
        elif now >= self._ping_at:
            self._ping_at = now + PING_EVERY_S
            self._guarded(lambda: self._pubsub.ping())

    def read(self) -> None:
        """Take what has arrived and pass it on."""
        arrived: list[dict[str, Any]] = []
        if self._pubsub is not None:
            self._guarded(lambda: self._drain(arrived))
        # Also confirmed when the client library connected again by itself.
        if any(message["type"] == "subscribe" for message in arrived):
            self._on_subscribed()
        for message in arrived:
            if message["type"] == "message":
                self._on_message(message["channel"].decode(errors="replace"), message["data"])

    def forget(self) -> None:
        """In a forked child: close the copy of the socket."""
        if self._pubsub is not None and self._pubsub.connection is not None:
            self._pubsub.connection.disconnect()

    def close(self) -> None:
        """Leave all channels."""
        pubsub, self._pubsub = self._pubsub, None
        self._watch(None)
        if pubsub is not None:
            with contextlib.suppress(RedisError, OSError):
                pubsub.close()

    def _connect(self) -> None:
        self._pubsub = cast(Any, self._client).pubsub()
        self._pubsub.subscribe(*sorted(self._channels))
        self._heard_at = time.monotonic()
        self._ping_at = self._heard_at + PING_EVERY_S

    def _drain(self, arrived: list[dict[str, Any]]) -> None:
        while (message := self._pubsub.get_message(timeout=0)) is not None:
            arrived.append(message)
            self._heard_at = time.monotonic()
            self._backoff.reset()

    def _guarded(self, action: Callable[[], object]) -> None:
        """Talk to the server; whatever goes wrong costs the connection and nothing more."""
        try:
            action()
        except (RedisError, OSError, RuntimeError, ValueError) as error:
            self._lost(str(error) or type(error).__name__)
        else:
            self._watch(self._pubsub.connection and self._pubsub.connection._sock)

    def _lost(self, why: str) -> None:
        self._retry_at = time.monotonic() + self._backoff.next()
        log.debug("lost the pub/sub connection: %s; subscribing again", why)
        self.close()

    def _watch(self, wanted: socket.socket | None) -> None:
        """Keep the selector at the socket of the moment."""
        if wanted is self._socket:
            return
        if self._socket is not None:
            self._selector.unregister(self._socket)
        self._socket = wanted
        if wanted is not None:
            self._selector.register(wanted, selectors.EVENT_READ, self.read)
