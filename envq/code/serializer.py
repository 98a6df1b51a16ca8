"""The serializer that envq gives to RQ: plain pickle for plain values, by value where a name would not do."""

from __future__ import annotations

import pickle
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from envq.code.pickling import plain_pickle
from envq.code.preflight import checked_dump, result_advice


class Serializer:
    """
    Writes what any RQ tool can read wherever that is possible.

    Instances of classes that live in ``__main__``, in a shipped module, or that a worker rebuilt
    from code sent by value, go by value with their class. Reading needs nothing but pickle.
    """

    loads = staticmethod(pickle.loads)

    def __init__(self) -> None:
        self._standing: tuple[object, bytes] | None = None

    def dumps(self, obj: Any) -> bytes:
        """Pickled bytes; raises PayloadError naming the part that cannot be pickled."""
        standing = self._standing
        if standing is not None and standing[0] is obj:
            return standing[1]
        plain = plain_pickle(obj)
        return checked_dump(obj, "a result or argument").body if plain is None else plain

    def result(self, obj: Any, function: str) -> bytes:
        """Like dumps, for what a function returned; its name is for the error."""
        data = plain_pickle(obj)
        return checked_dump(obj, f"the result of {function}", result_advice).body if data is None else data

    @contextmanager
    def standing_for(self, obj: Any, data: bytes) -> Generator[None]:
        """Inside, dumps of this very object gives these bytes: RQ pickles results again, perhaps changed."""
        self._standing = (obj, data)
        try:
            yield
        finally:
            self._standing = None


serializer = Serializer()
