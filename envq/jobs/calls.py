"""From a callable and its arguments to what stands in a job's record."""

from __future__ import annotations

import inspect
import pickle
import types
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, cast

from envq.code.payload import Blob, load_arguments, pack_arguments, pack_code
from envq.code.pickling import plain_pickle
from envq.code.repacking import pack_function
from envq.code.shipping import reference_of, underlying
from envq.remote import CALL, CALL_BY_NAME, CALL_OBJECT
from envq.settings import Limits

_PLAIN: frozenset[type] = frozenset((int, float, bool, str, bytes, type(None)))
_SMALL = 1024  # characters or bytes: so few of them are nothing to warn of
_FEW = 64


class Function(NamedTuple):
    """A callable, and how a worker gets at it: by importing ``name``, or with the code in ``blob``."""

    callable: Callable[..., Any] | str
    name: str  # dotted; what people see
    blob: Blob | None
    is_object: bool  # has a state of its own, so that each job gets a copy of it


class Call(NamedTuple):
    """The four parts of RQ's record of a call."""

    func_name: str
    instance: object
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


_shared: ContextVar[dict[int, Function] | None] = ContextVar("envq_shared_functions", default=None)


def function_of(function: Callable[..., Any] | str, limits: Limits) -> Function:
    """
    How a worker can run this; packs the code that has to travel, inside ``sharing_functions`` once.

    Raises TypeError for what cannot be called, PayloadError for code that cannot travel.
    """
    shared = _shared.get()
    if shared is None:
        return _function(function, limits)
    if id(function) not in shared:
        shared[id(function)] = _function(function, limits)
    return shared[id(function)]


@contextmanager
def sharing_functions() -> Generator[None]:
    """Inside, a function is looked at once: for many jobs that are enqueued together."""
    token = _shared.set({})
    try:
        yield
    finally:
        _shared.reset(token)


def _function(function: Callable[..., Any] | str, limits: Limits) -> Function:
    if isinstance(function, str):
        return Function(function, function, None, is_object=False)
    if not callable(cast(object, function)):
        raise TypeError(f"a job needs a function or the dotted name of one, not a {type(function).__name__}")
    code: Any = underlying(function)
    reference = reference_of(code)
    if reference is not None:
        return Function(function, f"{reference[0]}.{reference[1]}", None, is_object=False)
    name = dotted_name(code)
    if _is_c_function(code):
        return Function(function, name, None, is_object=False)
    if not isinstance(code, types.FunctionType | type):
        return Function(code, name, None, is_object=True)
    what = f"function {name}"
    if isinstance(code, type):
        return Function(function, name, pack_code(code, what=what, limits=limits), is_object=False)
    return Function(function, name, pack_function(code, what=what, limits=limits), is_object=False)


def call_of(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], limits: Limits) -> Call:
    """What to write; raises PayloadError naming the argument that cannot travel, PayloadTooLarge."""
    if function.is_object:
        return _object_call(function, args, kwargs, limits)
    if function.blob is not None:
        return Call(CALL, None, (function.blob.header.digest, _packed(function.name, args, kwargs, limits)), {})
    if _is_plain(args, kwargs):
        return Call(function.name, None, args, kwargs)
    payload = pack_arguments(args, kwargs, what=function.name, limits=limits)
    if payload is None:
        return Call(function.name, None, args, kwargs)
    return Call(CALL_BY_NAME, None, (function.name, payload), {})


def call_data(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], limits: Limits) -> bytes:
    """The pickled call, as RQ's record holds it; raises what ``call_of`` raises."""
    if function.blob is None and not function.is_object:
        if _is_plain(args, kwargs):
            return pickle.dumps((function.name, None, args, kwargs), protocol=pickle.HIGHEST_PROTOCOL)
        data = plain_pickle((function.name, None, args, kwargs))
        if data is not None and len(data) <= min(limits.warn_bytes, limits.max_bytes):
            return data
    call = call_of(function, args, kwargs, limits)
    return pickle.dumps(tuple(call), protocol=pickle.HIGHEST_PROTOCOL)


def arguments_of(call: Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the user's function, as copies where they are packed."""
    if call.func_name not in (CALL, CALL_BY_NAME):
        return call.args, call.kwargs
    return load_arguments(call.args[1], what=call.func_name)


def dotted_name(function: Any) -> str:
    """Module and qualified name; for a method, partial or callable object that of what it calls."""
    if isinstance(function, types.MethodType):
        return dotted_name(function.__func__)
    inner = getattr(function, "func", None)
    if inner is not None and not hasattr(function, "__qualname__"):
        return dotted_name(underlying(inner))
    named: Any = function if hasattr(function, "__qualname__") else cast(Any, type(function))
    return f"{named.__module__ or 'builtins'}.{named.__qualname__}"


def _object_call(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], limits: Limits) -> Call:
    target: Any = function.callable
    owner, attribute = (target.__self__, target.__name__) if inspect.ismethod(target) else (target, "__call__")
    # RQ's own form where any worker can read it; RQ takes an instance that is false for none at all.
    if _is_true(owner) and plain_pickle((owner, args, kwargs)) is not None:
        pack_arguments((owner, *args), kwargs, what=function.name, limits=limits)
        return Call(attribute, owner, args, kwargs)
    pack_code(target, what=f"function {function.name}", limits=limits)  # for errors that name the right part
    pack_arguments(args, kwargs, what=function.name, limits=limits)
    return Call(CALL_OBJECT, None, (_packed(function.name, (target, *args), kwargs, limits),), {})


def _packed(what: str, args: tuple[Any, ...], kwargs: dict[str, Any], limits: Limits) -> bytes:
    packed = None if _is_plain(args, kwargs) else pack_arguments(args, kwargs, what=what, limits=limits)
    if packed is None:  # an empty line: as load_arguments reads it, good for any Python version
        return b"\n" + pickle.dumps((args, kwargs), protocol=5)
    return packed


def _is_true(instance: object) -> bool:
    try:
        return bool(instance)
    except Exception:  # noqa: BLE001 - the user's __bool__; RQ would stumble over it as well
        return False


def _is_plain(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether all arguments are small values of built-in types, which need no further look."""
    values = (*args, *kwargs.values()) if kwargs else args
    if len(values) > _FEW:
        return False
    for each in values:
        if type(each) not in _PLAIN or (isinstance(each, str | bytes) and len(each) > _SMALL):
            return False
    return True


def _is_c_function(code: object) -> bool:
    return isinstance(code, types.BuiltinFunctionType) and (
        code.__self__ is None or isinstance(code.__self__, types.ModuleType)
    )
