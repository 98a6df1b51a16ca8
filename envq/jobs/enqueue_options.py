"""Options in the form in which RQ's enqueue takes and stores them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from rq.job import Retry
from rq.utils import parse_timeout

from envq.errors import ConfigurationError
from envq.store.code_store import CODE_TTL_S, DAY_S

LONGEST_TTL_S: Final = 2**31  # what any server takes
_YEAR_S: Final = 365 * DAY_S
# RQ's names for what is not an argument of the function.
_CALL_OPTIONS: Final = (
    "description", "result_ttl", "ttl", "failure_ttl", "depends_on", "job_id", "at_front", "meta", "retry", "repeat",
    "on_success", "on_failure", "on_stopped", "rate_limit", "webhooks", "pipeline", "unique",
)  # fmt: skip
_OF_THE_CALL: Final = ("func", "args", "kwargs", "timeout", "at_front")


def check_lives(options: dict[str, Any]) -> None:
    """Raise ConfigurationError for a life that is longer than a server takes, of which it would tell half-way."""
    for name in ("result_ttl", "failure_ttl", "ttl"):
        if (parse_timeout(options.get(name)) or 0) > LONGEST_TTL_S:
            raise ConfigurationError(f"{name}={options[name]!r:.200} must be at most {LONGEST_TTL_S} seconds")


def split_call(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], Any, dict[str, Any]]:
    """Arguments of the function, timeout, options: the way RQ tells them apart."""
    kwargs = dict(kwargs)
    options = {name: kwargs.pop(name) for name in _CALL_OPTIONS if name in kwargs}
    timeout = kwargs.pop("job_timeout", None)
    if "args" in kwargs or "kwargs" in kwargs:
        if args:
            raise TypeError("extra positional arguments cannot be used along with args= and kwargs=")
        return tuple(kwargs.pop("args", None) or ()), kwargs.pop("kwargs", None) or {}, timeout, options
    return args, kwargs, timeout, options


def are_alike(datas: Sequence[Any]) -> bool:
    """Whether all of these EnqueueData call the same function with the same options."""
    func, _, _, *options = datas[0]
    meta = datas[0].meta  # could hold anything, also what cannot be compared
    return all(data.func is func and data.meta is meta and list(data[3:]) == options for data in datas)


def options_of(data: Any) -> dict[str, Any]:
    """The options of enqueue_call that were given, without timeout and at_front."""
    given = cast("dict[str, Any]", data._asdict())
    return {name: value for name, value in given.items() if name not in _OF_THE_CALL and value is not None}


def expanded(retry: Retry | None) -> Retry | None:
    """One interval a retry: RQ would repeat the first of a shorter list, and only on an exception."""
    if retry is None or len(retry.intervals) == 1:
        return retry
    intervals = retry.intervals[: retry.max] or [0]
    intervals += [intervals[-1]] * (retry.max - len(intervals))
    return Retry(retry.max, intervals, retry.enqueue_at_front)


def extra_life_s(failure_ttl: Any) -> int:
    """How much longer than usual a failed job may ask for its code; -1: for ever."""
    kept = parse_timeout(failure_ttl)
    if kept is None:
        return 0
    return -1 if kept < 0 else max(0, kept - _YEAR_S)


def code_life_s(failure_ttl: Any) -> int:
    """How long the code of a job enqueued now must live on; -1: for ever."""
    extra_s = extra_life_s(failure_ttl)
    return -1 if extra_s < 0 else CODE_TTL_S + extra_s
