"""Events: made, appended to what is sent anyway, followed and replayed."""

from __future__ import annotations

import logging
from typing import Any, cast

from redis import Redis, RedisError
from redis.client import Pipeline

from envq.clock import iso, utc_now
from envq.keys import Keys
from envq.records import Event, EventKind
from envq.scripts import add_event

log = logging.getLogger("envq")


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


def replay(connection: Redis, keys: Keys, after: str = "0-0", limit: int = 1000) -> list[tuple[str, Event]]:
    """Events that followed a stream position, oldest first, each with its own position."""
    entries = cast(
        list[tuple[bytes, dict[bytes, bytes]]],
        cast(Any, connection).xrange(keys.events, min=f"({after}", count=limit),
    )
    return [(position.decode(), Event.from_json(fields[b"event"])) for position, fields in entries]
