"""Whether envq's keys hold what envq keeps there: anything else would make every command on them fail for ever."""

from __future__ import annotations

from typing import Any, cast

from redis import Redis, ResponseError

from envq.errors import ConfigurationError
from envq.store.keys import Keys


def check_key_types(connection: Redis, keys: Keys) -> None:
    """Raise ConfigurationError for a key of this namespace that somebody else uses; one round trip."""
    wanted = {
        keys.declarations: "hash",
        keys.generation: "string",
        keys.executors: "zset",
        keys.settle: "list",
        keys.events: "stream",
    }
    with cast(Any, connection).pipeline(transaction=False) as pipeline:
        for key in wanted:
            pipeline.type(key)
        try:
            found: list[bytes] = pipeline.execute()
        except ResponseError:
            return  # a user who may not ask
    for (key, kind), held in zip(wanted.items(), found, strict=True):
        if held.decode() not in (kind, "none"):
            raise ConfigurationError(
                f"the key {key} holds a {held.decode()} where envq keeps a {kind}: rename or delete it, "
                "or give envq a --namespace of its own"
            )
