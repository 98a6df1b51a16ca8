"""A list in Redis that code on any worker can append to: what was called, and in which order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import redis

from support.waiting import eventually

_numbers = itertools.count()


class Diary:
    """What initializers, reinitializers, checks, teardowns and jobs wrote down."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._key = f"test:diary:{next(_numbers)}"

    @property
    def write(self) -> Callable[[str], None]:
        """A function that travels by value and appends one entry from wherever it is called."""
        url, key = self._url, self._key

        def write(entry: str) -> None:
            import redis

            with redis.Redis.from_url(url) as client:
                client.rpush(key, entry)

        return write

    @property
    def entries(self) -> list[str]:
        """All entries so far, oldest first."""
        with redis.Redis.from_url(self._url) as client:
            entries: list[Any] = client.lrange(self._key, 0, -1)
        return [entry.decode() for entry in entries]

    def count(self, entry: str) -> int:
        return self.entries.count(entry)

    def wait_for(self, *entries: str, timeout: float = 20.0) -> None:
        """Wait until exactly these were written."""

        def written() -> None:
            assert self.entries == list(entries)

        eventually(written, timeout)
