"""The fingerprint of a value: another one for another content, the same for the same."""

from __future__ import annotations

import collections
import random
import sys
import threading
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from envq.code import fingerprint as module
from envq.code.fingerprint import Unreadable, fingerprint


@dataclass
class Model:
    weights: list[float] = field(default_factory=lambda: [1.0, 2.0])
    lock: Any = field(default_factory=threading.Lock)
    chance: random.Random = field(default_factory=random.Random)


class Refuses:
    """Cannot be pickled, as what holds a native handle."""

    def __init__(self, state: int) -> None:
        self.state = state
        self.handle = threading.Lock()

    def __reduce_ex__(self, protocol: object) -> Any:
        raise TypeError("cannot pickle a handle")


class Slotted:
    __slots__ = ("left", "right")

    def __init__(self, left: int) -> None:
        self.left = left
        self.right = [left]


def cyclic(number: int) -> list[Any]:
    value: list[Any] = [number]
    value.append({"self": value})
    return value


def closure(number: int) -> Callable[[], int]:
    return lambda: number


def array(*numbers: float, kind: str = "f8") -> Any:
    numpy = pytest.importorskip("numpy")
    return numpy.array(numbers, dtype=kind)


ANOTHER: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
    ("list", lambda: [1, 2], lambda: [2, 1]),
    ("dict", lambda: {"a": 1}, lambda: {"a": 2}),
    ("ordered dict", lambda: collections.OrderedDict(a=1, b=2), lambda: collections.OrderedDict(b=2, a=1)),
    ("default dict", lambda: collections.defaultdict(list, a=[1]), lambda: collections.defaultdict(list, a=[2])),
    ("deque", lambda: collections.deque([1]), lambda: collections.deque([1, 1])),
    ("set", lambda: {1, 2}, lambda: {1, 3}),
    ("object", Model, lambda: Model([1.0, 9.0])),
    ("slots", lambda: Slotted(1), lambda: Slotted(2)),
    ("what refuses to be pickled", lambda: Refuses(1), lambda: Refuses(2)),
    ("cycle", lambda: cyclic(1), lambda: cyclic(2)),
    ("closure", lambda: closure(1), lambda: closure(2)),
    ("bytes", lambda: bytearray(b"a"), lambda: bytearray(b"b")),
    ("array", lambda: array(1, 2), lambda: array(1, 3)),
    ("kind of an array", lambda: array(1, 2), lambda: array(1, 2, kind="f4")),
    ("shape of an array", lambda: array(1, 2), lambda: array(1, 2).reshape(2, 1)),
    ("array of objects", lambda: array([1], kind="O"), lambda: array([2], kind="O")),
    ("array with gaps", lambda: array(1, 2, 3)[::2], lambda: array(1, 2, 4)[::2]),
]


@pytest.mark.parametrize(("make", "make_another"), [each[1:] for each in ANOTHER], ids=[each[0] for each in ANOTHER])
def test_another_content_is_told_apart_and_the_same_is_not(
    make: Callable[[], object], make_another: Callable[[], object]
) -> None:
    assert fingerprint(make()) == fingerprint(make())
    assert fingerprint(make()) != fingerprint(make_another())


def shuffled_set() -> set[str]:
    names = {f"name {number}" for number in range(100)}
    for number in range(1000):
        names.add(f"more {number}")
        names.discard(f"more {number}")
    return names


def drawn() -> Model:
    model = Model()
    model.chance.random()
    return model


def drawn_array() -> Any:
    numpy = pytest.importorskip("numpy")
    chance = numpy.random.default_rng()
    chance.random()
    return [chance, numpy.random.RandomState()]


def counts(**numbers: int) -> Any:
    return collections.defaultdict(int, numbers)


def shared_array() -> Any:
    one = array(1, 2)
    return [one, one]


THE_SAME: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
    ("order of a dict", lambda: {"a": 1, "b": 2}, lambda: {"b": 2, "a": 1}),
    ("history of a set", lambda: {f"name {number}" for number in range(100)}, shuffled_set),
    ("not a number", lambda: [float("nan")], lambda: [float("nan")]),
    ("state of a random generator", Model, drawn),
    ("state of numpy's", drawn_array, drawn_array),
    ("sharing", lambda: [array(1, 2), array(1, 2)], shared_array),
    ("order of a default dict", lambda: counts(a=1, b=2), lambda: counts(b=2, a=1)),
    ("dates that are not", lambda: array("NaT", kind="M8[s]"), lambda: array("NaT", kind="M8[s]")),
]  # fmt: skip


@pytest.mark.parametrize(("make", "make_again"), [each[1:] for each in THE_SAME], ids=[each[0] for each in THE_SAME])
def test_what_is_no_content_raises_no_alarm(make: Callable[[], object], make_again: Callable[[], object]) -> None:
    assert fingerprint(make()) == fingerprint(make_again())


def test_what_a_function_finds_in_globals_is_not_its_own() -> None:
    home = types.ModuleType("home")
    exec("COUNT = [0]\n\ndef count():\n    COUNT[0] += 1", vars(home))
    before = fingerprint(home.count)
    home.count()
    assert fingerprint(home.count) == before


def test_weak_references_do_not_tell_what_was_collected() -> None:
    class Holder:
        def __init__(self) -> None:
            self.seen: weakref.WeakSet[Any] = weakref.WeakSet()

    class Guest:
        pass

    holder, guest = Holder(), Guest()
    before = fingerprint(holder)
    holder.seen.add(guest)
    assert fingerprint(holder) == before


@pytest.mark.parametrize("value", [threading.Lock(), random.Random(), weakref.WeakSet[Any]()], ids=type)
def test_what_has_no_content_says_so(value: object) -> None:
    with pytest.raises(Unreadable, match=type(value).__name__):
        fingerprint(value)


def test_what_is_too_large_or_too_deep_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1_048_576)
    with pytest.raises(Unreadable, match="larger than 1 MiB"):
        fingerprint({"weights": b"x" * 1_048_576})
    with pytest.raises(Unreadable, match="larger than 1 MiB"):
        fingerprint(list(map(str, range(1_000_000))))
    deep: list[Any] = []
    for _ in range(sys.getrecursionlimit()):
        deep = [deep]
    with pytest.raises(Unreadable, match="nested"):
        fingerprint(deep)


def test_a_large_array_is_read_in_place() -> None:
    numpy = pytest.importorskip("numpy")
    large = numpy.zeros(module.MOST_BYTES // 8 + 1)
    before = fingerprint(large)
    large[-1] = 1.0
    assert fingerprint(large) != before


def test_a_value_whose_own_code_raises_says_so() -> None:
    class Broken:
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise ValueError("broken")

        def __reduce_ex__(self, protocol: object) -> Any:
            raise ValueError

    with pytest.raises(Unreadable, match="ValueError: broken"):
        fingerprint(Broken())
