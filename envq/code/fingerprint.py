"""A value's content in short, to compare it with itself later (``envq worker --check-resets``)."""

from __future__ import annotations

import hashlib
import types
from collections.abc import Iterator
from typing import Any, Final, cast

from envq.code.digest import Parts, Walk
from envq.code.graph import ATOMS, Form

MOST_BYTES: Final = 256 * 1024 * 1024  # of a value; the walk holds a multiple of it for a moment
_CHUNK: Final = 16 * 1024 * 1024  # hashed in one go: no signal is heeded meanwhile
# They are drawn from by every use, and seeding them is no part of being clean.
_RANDOM: Final = frozenset(
    {
        ("random", "Random"),
        ("numpy.random._generator", "Generator"),
        ("numpy.random.bit_generator", "BitGenerator"),
        ("numpy.random.mtrand", "RandomState"),
        ("torch._C", "Generator"),
    }
)
# What they hold changes with every collection of garbage.
_WEAK: Final = frozenset({"weakref", "_weakref", "_weakrefset"})


class Unreadable(Exception):
    """A value has no content that can be compared; the text says why."""


def fingerprint(value: object) -> str:
    """
    Hex digest of a value's content; raises Unreadable, and what the value's own code raises that is no Exception.

    Neither the order of dicts and sets counts, nor identity, nor what a function finds in its module's globals. Parts
    that cannot be taken apart (locks, sockets, native handles), weak references and random generators count by their
    type alone.
    """
    content = _Content()
    try:
        form = content.form(value)
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"its own code raised {type(error).__name__}: {error}") from error
    if content.is_opaque(value):
        raise Unreadable(f"nothing can be read of an object of type {_name(type(value))}")
    return content.graph.digest(form)


class _Content(Walk):
    """A walk over state in place of code, as far as anything can be read, and not for ever."""

    def __init__(self) -> None:
        super().__init__()
        self._left = MOST_BYTES
        self._opaque: set[int] = set()

    def is_opaque(self, obj: object) -> bool:
        """Whether nothing but the type of this object is in its form."""
        return id(obj) in self._opaque

    def form(self, obj: object) -> Form:
        if isinstance(obj, str | bytes | bytearray) and type(obj) in ATOMS:
            self._take(len(obj))
        form = super().form(obj)
        self._take(len(form) if isinstance(form, bytes) else 1)
        return form

    def captured_globals(self, function: types.FunctionType) -> list[tuple[object, object]]:
        return []

    def reduced(self, obj: object) -> Parts:
        kinds = {(kind.__module__, kind.__qualname__) for kind in type(obj).__mro__}
        if kinds & _RANDOM or any(home in _WEAK for home, _ in kinds):
            return self._by_type(obj)
        if ("numpy", "ndarray") in kinds and (digest := _digest_of_array(obj)) is not None:
            return b"array", self.forms(_name(type(obj)), *digest), ()
        return super().reduced(obj)

    def irreducible(self, obj: object, error: Exception) -> Parts:
        state: Any = getattr(obj, "__dict__", None)
        if isinstance(state, dict) and state:
            return b"refuses", self.forms(_name(type(obj)), cast(object, state)), ()
        return self._by_type(obj)

    def _by_type(self, obj: object) -> Parts:
        self._opaque.add(id(obj))
        return b"opaque", self.forms(_name(type(obj))), ()

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise Unreadable(f"it is larger than {MOST_BYTES // 1024**2} MiB")


def _digest_of_array(array: Any) -> tuple[object, ...] | None:
    """Of a large array in place, for pickling it would copy it; None where its memory says nothing."""
    if array.dtype.hasobject or not array.size:
        return None
    if array.flags.c_contiguous:
        flat = array.reshape(-1)
    elif array.flags.f_contiguous:
        flat = array.T.reshape(-1)
    else:
        return None
    digest = hashlib.sha256()
    for chunk in _chunks(memoryview(flat.view("u1"))):
        digest.update(chunk)
    return str(array.dtype.descr), tuple(array.shape), bool(array.flags.c_contiguous), digest.digest()


def _chunks(memory: memoryview) -> Iterator[memoryview]:
    return (memory[start : start + _CHUNK] for start in range(0, len(memory), _CHUNK))


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
