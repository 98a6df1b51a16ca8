"""Pickling by value where it must be, and the refusal of what cannot leave its process."""

from __future__ import annotations

import io
import pickle
import sys
import types
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import cloudpickle  # pyright: ignore[reportMissingTypeStubs]

from envq.code.codeform import imported_names
from envq.code.reduction import EXTRA_RULES
from envq.code.shipping import is_shipped, shipped_modules

_PROTOCOL = 5
_MAIN = b"main__"  # the end of every name in MAIN_MODULES

# By top-level package and class name, of the class itself or of one it derives from.
_BOUND_TO_PROCESS = {
    **dict.fromkeys(
        [
            (package, name)
            for package in ("redis", "valkey")
            for name in ("Redis", "Valkey", "RedisCluster", "ValkeyCluster", "PubSub", "Sentinel", "Lock")
        ],
        "a Redis client",
    ),
    **dict.fromkeys(
        [
            (package, name)
            for package in ("redis", "valkey")
            for name in ("AbstractConnection", "ConnectionPool")
        ],
        "a Redis connection",
    ),
    **dict.fromkeys(
        [
            ("sqlite3", "Connection"), ("sqlite3", "Cursor"), ("psycopg", "BaseConnection"),
            ("psycopg2", "connection"), ("sqlalchemy", "Engine"), ("sqlalchemy", "Connection"),
            ("pymongo", "MongoClient"),
        ],
        "a database connection",
    ),
    **dict.fromkeys(
        [
            ("_io", name)
            for name in ("TextIOWrapper", "BufferedReader", "BufferedWriter", "BufferedRandom", "FileIO")
        ],
        "an open file",
    ),
    ("_thread", "lock"): "a lock",
    ("_thread", "RLock"): "a lock",
    ("threading", "Event"): "a thread's event",
    ("threading", "Condition"): "a thread's condition",
    ("threading", "Semaphore"): "a semaphore",
    ("threading", "Thread"): "a thread",
    ("socket", "socket"): "a socket",
}  # fmt: skip


class Pickled(NamedTuple):
    """Pickled bytes, and what there is to know about them."""

    body: bytes
    by_value: bool  # they hold code that only this Python minor version understands
    late_imports: tuple[str, ...]  # "module in function": of shipped modules, where no worker can find them


class CannotTravel(TypeError):
    """Met while pickling: an object bound to its process; ``kind`` says what it is ("a lock")."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"{kind} cannot be pickled")
        self.kind = kind


def bound_to_process(obj: object) -> str | None:
    """What this object is, if it is a connection, file, lock or the like: "a lock"; None for all others."""
    for cls in type(obj).__mro__:
        kind = _BOUND_TO_PROCESS.get((cls.__module__.partition(".")[0], cls.__name__))
        # The standard streams are found again by name, and belong to every process.
        if kind is not None and obj is not sys.stdout and obj is not sys.stderr:
            return kind
    return None


def dump(obj: object) -> Pickled:
    """Pickle, by value where needed; raises CannotTravel, or whatever an object's own reduction raises."""
    with io.BytesIO() as file, _spawned_main_by_value():
        pickler = _Pickler(file, protocol=_PROTOCOL)
        pickler.dump(obj)  # pyright: ignore[reportUnknownMemberType]
        return Pickled(file.getvalue(), pickler.by_value, tuple(sorted(pickler.late_imports)))


def plain_pickle(obj: object) -> bytes | None:
    """What plain pickle writes, if a process without our ``__main__`` and shipped modules can read it."""
    try:
        data = pickle.dumps(obj, protocol=_PROTOCOL)
    except Exception:  # noqa: BLE001 - reductions are user code
        return None
    # Names of modules stand in a pickle as they are; one that is part of a text costs a slower way, no more.
    if _MAIN in data:
        return None
    shipped = shipped_modules()
    return None if shipped and any(name.encode() in data for name in shipped) else data


class _Pickler(cloudpickle.Pickler):
    def __init__(self, file: io.BytesIO, protocol: int) -> None:
        super().__init__(file, protocol=protocol)  # pyright: ignore[reportUnknownMemberType]
        self.by_value = False
        self.late_imports: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        if isinstance(obj, type | types.FunctionType):
            reduced: Any = super().reducer_override(obj)  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
            # cloudpickle gives a state setter, in sixth place, only with what it takes apart.
            if isinstance(reduced, tuple) and len(cast("tuple[object, ...]", reduced)) == 6:
                self._note(obj)
            return cast("object", reduced)
        if isinstance(obj, types.CodeType):
            self.by_value = True
        elif kind := bound_to_process(obj):
            raise CannotTravel(kind)
        rule = EXTRA_RULES.get(type(cast("object", obj)))
        return NotImplemented if rule is None else rule(obj)

    def _note(self, obj: type | types.FunctionType) -> None:
        self.by_value = True
        if isinstance(obj, types.FunctionType) and shipped_modules():
            late = filter(is_shipped, imported_names(obj.__code__))
            self.late_imports.update(f"{name} in {obj.__qualname__}" for name in late)


@contextmanager
def _spawned_main_by_value() -> Generator[None]:
    """In a child that ``multiprocessing`` spawned the main script has a name that no worker can import."""
    main = sys.modules.get("__mp_main__")
    if main is None or main.__name__ != "__mp_main__":
        yield
        return
    cloudpickle.register_pickle_by_value(main)  # pyright: ignore[reportUnknownMemberType]
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(main)  # pyright: ignore[reportUnknownMemberType]


def pickles(obj: object) -> bool:
    """Whether the object can be pickled."""
    try:
        dump(obj)
    except Exception:  # noqa: BLE001 - reductions are user code
        return False
    return True


def size_of(obj: object) -> int:
    """Pickled size in bytes; 0 for what cannot be pickled."""
    try:
        return len(dump(obj).body)
    except Exception:  # noqa: BLE001 - reductions are user code
        return 0
