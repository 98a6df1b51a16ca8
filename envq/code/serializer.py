"""The serializer that envq gives to RQ: plain pickle for plain values, by value where a name would not do."""

from __future__ import annotations

import pickle
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
        self._prepared: tuple[object, bytes] | None = None

    def dumps(self, obj: Any) -> bytes:
        """Pickled bytes; raises PayloadError naming the part that cannot be pickled."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared[0] is obj:
            return prepared[1]
        plain = plain_pickle(obj)
        return checked_dump(obj, "a result or argument").body if plain is None else plain

    def prepare(self, obj: Any, function: str) -> bytes:
        """
        Like dumps, for what a function returned; the next dumps costs nothing if it is for this very object.

        For a caller that must know whether a result can be pickled before RQ's own code pickles it. The function's
        name is for the error. Only that one call is spared: kept any longer, the bytes of a value that changes would be
        stale.
        """
        self._prepared = None  # nobody asked for the last one: its object may be this one, changed since
        data = plain_pickle(obj)
        if data is None:
            data = checked_dump(obj, f"the result of {function}", result_advice).body
        self._prepared = (obj, data)
        return data


serializer = Serializer()
