"""From a stored payload to the call: the function is looked up once, not with each job."""

from __future__ import annotations

import contextlib
import importlib
import pickle
import sys
import zlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

from rq.utils import import_attribute

from envq.errors import PayloadError

_ZLIB: Final = 0x78  # how a compressed payload begins; a pickle never does
KEPT: Final = 1024  # names


class StoredCall(NamedTuple):
    """RQ's record of a call."""

    func_name: str | None
    instance: object
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def unpack(data: bytes, job_id: str) -> StoredCall:
    """Unpickle a payload; PayloadError says what is missing on this worker."""
    if data and data[0] == _ZLIB:
        with contextlib.suppress(zlib.error):
            data = zlib.decompress(data)
    try:
        name, instance, args, kwargs = pickle.loads(data)
    except Exception as error:
        raise PayloadError(
            f"the payload of job {job_id} cannot be unpickled on this worker ({type(error).__name__}: {error})"
        ) from error
    if not isinstance(kwargs, dict) or not (name is None or isinstance(name, str)):
        raise PayloadError(
            f"the payload of job {job_id} is no call: the function's name in it is a {type(name).__name__}, "
            f"its keywords are a {type(cast(object, kwargs)).__name__}"
        )
    return StoredCall(name, instance, args, kwargs)


def function_of(call: StoredCall, job_id: str) -> Callable[..., Any]:
    """The function of a call; PayloadError where this worker cannot import it."""
    if call.func_name is None:
        raise PayloadError(f"job {job_id} names no function")
    if call.instance:
        return cast("Callable[..., Any]", getattr(call.instance, call.func_name))
    return function_named(call.func_name)


def function_named(dotted: str) -> Callable[..., Any]:
    """The function of that name, as its module has it now; PayloadError where this worker cannot import it."""
    known = _known.get(dotted)
    if known is not None:
        module, name, function = known
        if sys.modules.get(module.__name__) is module and module.__dict__.get(name) is function:
            return function
    try:
        function = import_attribute(dotted)
    except (ValueError, ImportError, AttributeError) as error:
        reason = _why_not_importable(dotted) or str(error)
        raise PayloadError(
            f"this worker cannot import {dotted!r}: {reason}; install its module on the worker, "
            "start the worker with -P FOLDER, or call envq.ship(module) on the driver"
        ) from (None if isinstance(error, ValueError) else error)
    module_name, _, name = dotted.rpartition(".")
    module = sys.modules.get(module_name)
    if module is not None and module.__dict__.get(name) is function:
        if len(_known) >= KEPT:
            _known.clear()
        _known[dotted] = (module, name, function)
    return function


_known: dict[str, tuple[Any, str, Callable[..., Any]]] = {}


def _why_not_importable(dotted: str) -> str:
    """The import error behind RQ's "Invalid attribute name"; "" where the module imports."""
    module = dotted.rpartition(".")[0]
    while module:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            parent = module.rpartition(".")[0]
            if error.name == module and parent:
                module = parent
                continue
            return str(error)
        except Exception as error:  # noqa: BLE001 - the user's module runs here
            return f"importing {module} raised {type(error).__name__}: {error}"
        return f"module {module} has no attribute {dotted.removeprefix(module).lstrip('.').split('.')[0]!r}"
    return ""
