"""Versions whose build kills its process: marked before each try, refused after too many deaths (C14).

A mark is taken away when the build has ended, whatever came of it. Marks of executors that live no more are
builds that killed their process; a supervisor adds the ones it saw itself.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Final, cast

from redis import Redis

from envq.runtime import Quarantined, Recipe
from envq.store.connection import REDIS_ERRORS
from envq.store.keys import Keys

log = logging.getLogger("envq.env")

DEATHS_PER_HOST: Final = 3
HOSTS_EVERYWHERE: Final = 2
MARK_TTL_S: Final = 24 * 3600


def build_mark(host: str, executor: str) -> str:
    """The field of one executor's try."""
    return f"{host}/{executor}"


class Quarantine:
    """The marks as one executor makes and reads them."""

    def __init__(self, connection: Redis, keys: Keys, host: str, executor: str) -> None:
        self._connection = connection
        self._keys = keys
        self._host = host
        self._executor = executor
        self._mark = build_mark(host, executor)

    def mark_try(self, recipe: Recipe) -> None:
        """Before a build; raises Quarantined where it killed too many processes. Without Redis it is tried."""
        try:
            if reason := self._reason(recipe):
                raise Quarantined(reason)
            key = self._keys.tries(recipe.name, recipe.version)
            with self._connection.pipeline(transaction=False) as pipeline:
                pipeline.hset(key, self._mark, str(time.time()))
                pipeline.expire(key, MARK_TTL_S)
                pipeline.execute()
        except REDIS_ERRORS as error:
            log.warning("the build of %s could not be marked: %s", recipe.name, error)

    def survived(self, recipe: Recipe) -> None:
        """After a build."""
        cast(Any, self._connection).hdel(self._keys.tries(recipe.name, recipe.version), self._mark)

    def _reason(self, recipe: Recipe) -> str:
        """Why the version may not be tried here; "" if it may."""
        with self._connection.pipeline(transaction=False) as pipeline:
            pipeline.hkeys(self._keys.tries(recipe.name, recipe.version))
            cast(Any, pipeline).zrange(self._keys.executors, 0, -1)
            marks, living = cast(tuple[list[bytes], list[bytes]], tuple(pipeline.execute()))
        alive = {name.decode(errors="replace") for name in living} | {self._executor}
        parted = [mark.decode(errors="replace").partition("/") for mark in marks]
        hosts = [host for host, _, executor in parted if executor not in alive]
        worst = sorted(host for host in set(hosts) if hosts.count(host) >= DEATHS_PER_HOST)
        if self._host in worst:
            return f"its build killed {DEATHS_PER_HOST} processes on {self._host}"
        if len(worst) >= HOSTS_EVERYWHERE:
            return f"its build killed processes on {', '.join(worst)}"
        return ""
