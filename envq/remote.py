"""What stands in the record of a job whose function or arguments a worker cannot import: these entry points."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, cast

from redis import Redis
from rq import get_current_job
from rq.utils import import_attribute

from envq.code.payload import Blob, load_arguments, load_code
from envq.errors import CodeMissing, ConfigurationError, PayloadError
from envq.settings import DEFAULT_NAMESPACE
from envq.store.code_store import CodeStore
from envq.store.keys import Keys

CodeSource = Callable[[str], Blob]

FUNCTIONS_KEPT: Final = 256  # loaded functions per process, the least recently called go first

CALL: Final = "envq.remote.call"
CALL_BY_NAME: Final = "envq.remote.call_by_name"
CALL_OBJECT: Final = "envq.remote.call_object"


def call(digest: str, payload: bytes) -> Any:
    """Call the function whose code has this digest; what it returns is passed on, a coroutine as it is."""
    function = _function(digest)
    args, kwargs = load_arguments(payload, what=_name(function))
    return function(*args, **kwargs)


def call_by_name(dotted: str, payload: bytes) -> Any:
    """Call an importable function with arguments that only envq can unpickle."""
    args, kwargs = load_arguments(payload, what=dotted)
    return import_attribute(dotted)(*args, **kwargs)


def call_object(payload: bytes) -> Any:
    """Call a bound method, a partial or another object with a state of its own: unpickled anew for each job."""
    (function, *args), kwargs = load_arguments(payload, what="a job")
    return function(*args, **kwargs)


def bind_code_source(source: CodeSource | None) -> CodeSource | None:
    """Say where this process gets code from; None: the connection of the running job. Returns the one before."""
    global _process_source
    previous, _process_source = _process_source, source
    return previous


_functions: OrderedDict[str, Callable[..., Any]] = OrderedDict()
_process_source: CodeSource | None = None


def _function(digest: str) -> Callable[..., Any]:
    if not isinstance(digest, str):  # pyright: ignore[reportUnnecessaryIsInstance] - it comes from a record
        raise PayloadError(
            f"the code of a job is named by its digest, not by an object of type {type(digest).__name__}"
        )
    function = _functions.pop(digest, None)
    if function is None:
        source = _process_source or _from_running_job
        function = load_code(source(digest))
    _functions[digest] = function
    while len(_functions) > FUNCTIONS_KEPT:
        _functions.popitem(last=False)
    return function


def _from_running_job(digest: str) -> Blob:
    """Any RQ worker: the job says where it came from, and its queue's name in which namespace."""
    job = get_current_job()
    if job is None:
        raise ConfigurationError("envq.remote.call was called outside a job")
    prefix, colon, _ = job.origin.partition(":")
    namespaces = [prefix, DEFAULT_NAMESPACE] if colon else [DEFAULT_NAMESPACE]
    for namespace in namespaces[:-1]:
        try:
            return _stored(job, namespace, digest)
        except CodeMissing:
            continue  # a colon in the name of a queue of the default namespace
    return _stored(job, namespaces[-1], digest)


def _stored(job: Any, namespace: str, digest: str) -> Blob:
    connection = cast(Redis, job.connection)
    return CodeStore(connection, Keys(namespace)).get(digest, f"function {job.description}")


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__name__)
