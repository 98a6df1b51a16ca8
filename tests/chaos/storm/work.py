"""What the jobs of a storm do. Importable on its workers; every effect goes into a file that no Redis holds."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import rq

import envq

EFFECTS: Final = "STORM_EFFECTS"  # environment variable: the path of the file
LARGE: Final = 100_000  # bytes
RETRIES: Final = 2
OVERDUE_S: Final = 0.2
ERRORS: Final = {"fail": "ValueError", "fail-told": "ValueError", "fail-once": "ValueError", "overdue": "JobTimedOut"}

BEGUN: Final = "begun"
ENDED: Final = "ended"
DIRTY: Final = "dirty"
TOLD: Final = "told"  # a callback ran

_NEVER: Final = threading.Event()  # jobs take their time by waiting for it


@cache
def _file() -> int:
    return os.open(os.environ[EFFECTS], os.O_WRONLY | os.O_APPEND)


def note(*words: object) -> None:
    """One line; appended by one write, so that lines of several processes stand one behind the other, whole."""
    os.write(_file(), (" ".join(map(str, words)) + "\n").encode())


def act(kind: str, effect: str, number: int, text: str = "") -> Any:
    """The job: what it returns follows from its arguments alone, but for the label of a variable."""
    note(BEGUN, effect, os.getpid())
    value = DEEDS.get(kind, _answer)(number, text)
    note(ENDED, effect, os.getpid())
    return value


async def act_slowly(kind: str, effect: str, number: int, text: str = "") -> Any:
    """The same as a coroutine."""
    note(BEGUN, effect, os.getpid())
    await asyncio.sleep(number % 30 / 1000)
    note(ENDED, effect, os.getpid())
    return _answer(number, text)


def by_value() -> Callable[..., Any]:
    """The job as a function that no worker can import: its code travels."""

    def act_by_value(kind: str, effect: str, number: int, text: str = "") -> Any:
        return act(kind, effect, number, text)

    return act_by_value


def expected(kind: str, number: int, text: str = "") -> Any:
    """What such a job returns; None where it raises; of a read what is not its label."""
    if kind in ERRORS:
        return None
    if kind == "large":
        return _large(number, text)
    return _answer(number, text)


def _answer(number: int, text: str) -> Any:
    return number * 7 + len(text)


def _nap(number: int, text: str) -> Any:
    _NEVER.wait(number % 100 / 1000)
    return _answer(number, text)


def _long(number: int, text: str) -> Any:
    _NEVER.wait(0.1 + number % 40 / 100)
    return _answer(number, text)


def _large(number: int, text: str) -> Any:
    return hashlib.sha256(text.encode()).hexdigest(), bytes([number % 256]) * LARGE


def _fail(number: int, text: str) -> Any:
    raise ValueError(number)


def _overrun(number: int, text: str) -> Any:
    _NEVER.wait(60)


def _raise_first(number: int, text: str) -> Any:
    job = rq.get_current_job()
    if job is not None and job.retries_left:
        raise ValueError(number)
    return _answer(number, text)


def _again(number: int, text: str) -> Any:
    job = rq.get_current_job()
    if job is not None and (job.number_of_retries or 0) < RETRIES:
        return rq.Retry(max=RETRIES)
    return _answer(number, text)


def _read(number: int, text: str) -> Any:
    return _answer(number, ""), seen("steady"), seen("chained")


def _read_custom(number: int, text: str) -> Any:
    return _answer(number, ""), seen("custom"), None


def _read_shaky(number: int, text: str) -> Any:
    return _answer(number, ""), seen("shaky"), None


def seen(name: str) -> int:
    """The label of a variable, which is checked to be as its initializer makes it, and then is spoilt."""
    value = getattr(envq.env, name)
    label = value.get("label")
    if value != fresh(label):
        note(DIRTY, name, repr(value).replace(" ", ""))
    value["items"].append(os.getpid())
    value["spoilt"] = True
    return label


def fresh(label: int) -> dict[str, Any]:
    """The value of a variable as its initializer makes it."""
    return {"label": label, "items": [label, label + 1]}


def put_back(value: dict[str, Any]) -> dict[str, Any]:
    """A reinitializer."""
    label = value["label"]
    value.clear()
    value.update(fresh(label))
    return value


def on_success(job: Any, connection: Any, result: Any) -> None:
    """A callback; its job names itself by its id."""
    note(TOLD, job.id, "success")


def on_failure(job: Any, connection: Any, *error: Any) -> None:
    """A callback."""
    note(TOLD, job.id, "failure")


DEEDS: Final[dict[str, Callable[[int, str], Any]]] = {
    "nap": _nap,
    "once": _nap,
    "long": _long,
    "large": _large,
    "fail": _fail,
    "fail-told": _fail,
    "fail-once": _fail,
    "overdue": _overrun,
    "retry": _raise_first,
    "again": _again,
    "read": _read,
    "custom": _read_custom,
    "shaky": _read_shaky,
}
