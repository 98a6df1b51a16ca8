"""Events: made, appended to what is sent anyway, followed and replayed."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from typing import Any, Final, cast

from redis import Redis, RedisError
from redis.client import Pipeline
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from envq.clock import iso, utc_now
from envq.store.keys import Keys
from envq.store.records import Event, EventKind
from envq.store.scripts import add_event

log = logging.getLogger("envq")

FROM_START: Final = "0-0"
PAGE: Final = 500
BLOCK_MS: Final = 2000
RECONNECT_S: Final = 0.5


def event(kind: EventKind, **fields: Any) -> Event:
    """An event that happens now."""
    return Event(kind=kind.value, at=iso(utc_now()), **fields)


def append(pipeline: Pipeline | Redis, keys: Keys, happened: Event) -> None:
    """Put an event on the channel and the stream along with other commands."""
    add_event(pipeline, keys, happened.to_json())


def emit(connection: Redis, keys: Keys, happened: Event) -> None:
    """Send one event by itself. Fails open: an event that cannot be sent is logged, nothing more."""
    try:
        with connection.pipeline(transaction=False) as pipeline:
            append(pipeline, keys, happened)
            pipeline.execute()
    except RedisError as error:
        log.debug("event %s could not be sent: %s", happened.kind, error)


def last_position(connection: Redis, keys: Keys) -> str:
    """Where the stream ends now, to follow what comes from here on."""
    entries = cast(list[tuple[bytes, Any]], cast(Any, connection).xrevrange(keys.events, count=1))
    return entries[0][0].decode() if entries else FROM_START


def follow(connection: Redis, keys: Keys, after: str) -> Iterator[Event]:
    """
    Events behind a position of the stream, oldest first, without an end.

    A lost connection is made anew; what happened meanwhile comes then, as far as the capped stream has it.
    """
    while True:
        try:
            streams = cast(Any, connection).xread({keys.events: after}, count=PAGE, block=BLOCK_MS)
        except (ConnectionError, RedisConnectionError, RedisTimeoutError) as error:
            log.warning("the events cannot be read, trying again: %s", error)
            time.sleep(RECONNECT_S)
            continue
        for position, fields in _entries(streams):
            after = position.decode()
            yield from read(fields.get(b"event", b""))


def read(message: str | bytes) -> list[Event]:
    """The events of one message: jobs that an executor claimed or ended together share one; none of what is none."""
    try:
        shared = cast("dict[str, Any]", json.loads(message))
        jobs = cast("list[dict[str, Any]]", shared.pop("jobs", [{}]))
        return [Event.from_json(json.dumps(shared | job)) for job in jobs]
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        log.debug("%r is no event and is left out: %s", message[:80], error)
        return []


def _entries(streams: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Of the one stream that was read; RESP2 gives a list of streams, RESP3 a mapping."""
    if not streams:
        return []
    if isinstance(streams, dict):
        (pages,) = cast(dict[bytes, list[Any]], streams).values()
        return [entry for page in pages for entry in page]
    return cast(list[tuple[bytes, dict[bytes, bytes]]], streams[0][1])
