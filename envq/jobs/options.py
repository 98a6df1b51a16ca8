"""The options of a job: their names and types, and one error for a name that is none."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast

from redis.client import Pipeline
from rq.callbacks import Callback
from rq.job import Dependency, Retry
from rq.job import Job as RQJob
from rq.queue import Queue as RQQueue
from rq.rate_limit import RateLimit
from rq.repeat import Repeat
from rq.types import JobDependencyType
from rq.utils import parse_timeout
from rq.webhook import Webhook

from envq.errors import ConfigurationError, did_you_mean
from envq.jobs.enqueue_options import LONGEST_TTL_S
from envq.jobs.job import OnCrash
from envq.jobs.time_limit import limit_seconds
from envq.names import valid_queue_name

if TYPE_CHECKING:
    import rq


class JobOptions(TypedDict, total=False):
    """What RQ's enqueue takes besides the call, and what envq adds; seconds unless said."""

    queue: str | rq.Queue
    timeout: float | str | None  # None or -1: no limit
    job_timeout: float | str | None  # RQ's name for it
    result_ttl: int | str | None  # 0: no result is kept, -1: for ever
    failure_ttl: int | str | None
    ttl: int | str | None  # how long it may wait in the queue
    description: str | None
    depends_on: JobDependencyType | None
    job_id: str | None
    unique: bool
    at_front: bool
    meta: dict[str, Any] | None
    retry: Retry | int | None  # a number: that many, at once
    repeat: Repeat | None
    on_success: Callback | None
    on_failure: Callback | None
    on_stopped: Callback | None
    rate_limit: RateLimit | None
    webhooks: Sequence[Webhook] | None
    group_id: str | None
    pipeline: Pipeline | None
    on_crash: OnCrash  # "fail": never run twice
    seed: int | None  # of random, and numpy's where it is loaded


NAMES: Final = frozenset(JobOptions.__annotations__)
_JOB_ID: Final = re.compile("[A-Za-z0-9_-]+").fullmatch  # what RQ takes


def checked(given: Mapping[str, Any]) -> JobOptions:
    """The same options, ``job_timeout`` under its other name; ConfigurationError for what cannot be used."""
    for name in given:
        if name not in NAMES:
            raise _unknown(name)
    options: dict[str, Any] = dict(given)
    if "job_timeout" in options:
        options.setdefault("timeout", options.pop("job_timeout"))
    for name, value in options.items():
        if (wanted := _wanted(name, value)) is not None:
            raise ConfigurationError(f"{name}={value!r:.200} must be {wanted}")
    if isinstance(options.get("retry"), int):
        options["retry"] = Retry(options["retry"]) if options["retry"] else None
    return cast(JobOptions, options)


def _wanted(name: str, value: Any) -> str | None:
    """What the option takes, where this is not it."""
    match name:
        case "queue" if not (isinstance(value, RQQueue) or _readable_name(value)):
            return "the name of a queue, or an envq.Queue"
        case "timeout" if not _readable(limit_seconds, value):
            return 'seconds above 0, a text like "2m", or None for no limit'
        case "result_ttl" | "failure_ttl" if not _readable(parse_timeout, value) or not _lasts(value, -1):
            return f'whole seconds up to {LONGEST_TTL_S}, or a text like "1h"; -1 means for ever'
        case "ttl" if not _readable(parse_timeout, value) or not _lasts(value, 1):
            return f'whole seconds from 1 to {LONGEST_TTL_S}, or a text like "1h"'
        case "retry" if value is not None and not (isinstance(value, Retry) or _is_count(value)):
            return "how often it runs again, 0 or more, or an envq.Retry"
        case "seed" if value is not None and not _is_whole(value):
            return "a whole number"
        case "on_crash" if value not in ("requeue", "fail"):
            return "'requeue' or 'fail'"
        case _ if value is not None and name in _OF_RQ:
            fits, wanted = _OF_RQ[name]
            return None if fits(value) else wanted
        case _:
            return None


def _are_jobs(value: Any) -> bool:
    members = cast("Sequence[Any]", value if isinstance(value, list | tuple) else [value])
    return all(isinstance(each, RQJob | Dependency | str) for each in members)


def _is_text(value: Any) -> bool:
    try:
        return isinstance(value, str) and value.encode().decode() == value
    except UnicodeEncodeError:
        return False


# Mistakes that RQ would find late, or never.
_OF_RQ: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "job_id": (
        lambda value: isinstance(value, str) and bool(_JOB_ID(value)),
        "a text of letters, digits, underscores and dashes",
    ),
    "description": (_is_text, "a text"),
    "group_id": (_is_text, "a text"),
    "meta": (lambda value: isinstance(value, dict), "a dict"),
    "depends_on": (_are_jobs, "a job, its id, an envq.Dependency, or a list of these"),
    "repeat": (lambda value: isinstance(value, Repeat), "an envq.Repeat"),
    "rate_limit": (lambda value: isinstance(value, RateLimit), "RQ's RateLimit"),
    "pipeline": (lambda value: isinstance(value, Pipeline), "a pipeline of redis-py"),
}


def _readable_name(value: object) -> bool:
    try:
        valid_queue_name(value)
    except ConfigurationError:
        return False
    return True


def _lasts(value: Any, least_s: int) -> bool:
    """Whether that many seconds are something a server can keep a record for."""
    seconds = parse_timeout(value)
    return seconds is None or least_s <= seconds <= LONGEST_TTL_S


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_whole(value) and value >= 0


def _readable(read: Callable[[Any], object], value: object) -> bool:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float | str)):
        return False
    try:
        read(value)
    except Exception:  # noqa: BLE001 - RQ's errors about a text have several classes
        return False
    return True


def _unknown(name: str) -> ConfigurationError:
    return ConfigurationError(f"unknown option {name!r}{did_you_mean(name, NAMES)} (known: {', '.join(sorted(NAMES))})")
