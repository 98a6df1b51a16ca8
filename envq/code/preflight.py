"""The check before anything is sent: pickle it, or refuse it in one sentence that names the culprit."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import NoReturn

from envq.code.captures import locate
from envq.code.pickling import CannotTravel, Pickled, bound_to_process, dump, pickles, size_of
from envq.errors import PayloadError, PayloadTooLarge
from envq.settings import Limits

ADVICE = "create it inside the initializer of an envq.EnvironmentVariable, and read it from envq.env"

_log = logging.getLogger("envq")
_warned: set[tuple[str, str]] = set()


def _advice(culprit: object) -> str:
    if inspect.iscoroutine(culprit):
        return "await it first, and pass what it gives"
    if inspect.isgenerator(culprit):
        return "pass a list of what it yields"
    return ADVICE


def result_advice(culprit: object) -> str:
    """What to do about a result that holds this."""
    if inspect.isgenerator(culprit) or isinstance(culprit, map | filter | zip):
        return "return a list of what it yields"
    return "return plain data made from it: numbers, text, lists, dicts"


def checked_dump(obj: object, what: str, advice: Callable[[object], str] = _advice) -> Pickled:
    """
    Pickle, or raise PayloadError naming ``what`` and the captured variable or argument to blame.

    Args:
        advice: from what is to blame to what to do about it
    """
    try:
        return dump(obj)
    except Exception as error:
        if isinstance(error, RecursionError) or isinstance(error.__cause__, RecursionError):
            raise PayloadError(f"{what}: a value is nested too deeply to be pickled") from error
        _refuse(obj, what, error, advice)


def _refuse(obj: object, what: str, error: Exception, advice: Callable[[object], str]) -> NoReturn:
    culprit = locate(obj, lambda part: not pickles(part))
    kind = bound_to_process(culprit.value)
    name = f"{type(culprit.value).__module__}.{type(culprit.value).__qualname__}"
    if kind is not None:
        reason = f"is {kind} ({name}), which cannot leave its process"
    elif isinstance(error, CannotTravel):
        reason = f"(a {name}) holds {error.kind}, which cannot leave its process"
    else:
        reason = f"(a {name}) cannot be pickled ({type(error).__name__}: {error})"
    raise PayloadError(f"{what}: {culprit.path or 'the value'} {reason}; {advice(culprit.value)}") from error


def check_size(size: int, obj: object, what: str, limits: Limits) -> None:
    """Raise PayloadTooLarge naming the heaviest part when ``size`` bytes of ``obj`` are over the limit."""
    if size <= limits.max_bytes:
        return
    culprit = locate(obj, lambda part: size_of(part) > size / 2)
    heaviest = f", most of it {culprit.path}" if culprit.path else ""
    raise PayloadTooLarge(
        f"{what}: {size:,} bytes pickled{heaviest}; the limit is {limits.max_bytes:,} bytes "
        "(ENVQ_MAX_PAYLOAD_BYTES). Load it inside the initializer of an envq.EnvironmentVariable"
    )


def warn_late_imports(late_imports: tuple[str, ...], what: str) -> None:
    """Log one warning for each import of a shipped module inside a function: it fails where that runs."""
    for late in late_imports:
        if (what, late) not in _warned:
            _warned.add((what, late))
            _log.warning(
                "%s: the import of the shipped module %s cannot work on a worker without it; "
                "import it at the top of the file",
                what,
                late,
            )


def warn_size(size: int, what: str, limits: Limits, *, once_for: str) -> None:
    """Log one warning for ``what`` and ``once_for`` when ``size`` is over the soft limit."""
    if size <= limits.warn_bytes or (what, once_for) in _warned:
        return
    _warned.add((what, once_for))
    _log.warning(
        "%s: %s bytes pickled are more than %s (ENVQ_WARN_PAYLOAD_BYTES); every worker that needs them "
        "fetches them from Redis. Load large data inside the initializer of an envq.EnvironmentVariable",
        what,
        f"{size:,}",
        f"{limits.warn_bytes:,}",
    )
