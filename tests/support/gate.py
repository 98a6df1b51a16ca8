"""A place where code on a worker waits until the test lets it go on."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import redis

_numbers = itertools.count()
LONGEST_WAIT_S = 30


class Gate:
    """Closed at first; every ``open`` lets one waiting caller through."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._key = f"test:gate:{next(_numbers)}"

    @property
    def wait(self) -> Callable[[], None]:
        """A function that travels by value and returns once the gate was opened for it."""
        url, key, longest_s = self._url, self._key, LONGEST_WAIT_S

        def wait() -> None:
            import redis

            with redis.Redis.from_url(url) as client:
                client.blpop(key, timeout=longest_s)

        return wait

    def open(self) -> None:
        with redis.Redis.from_url(self._url) as client:
            client.rpush(self._key, "open")
