"""The options of a job: their names and types, and one error for a name that is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast

from redis.client import Pipeline
from rq.callbacks import Callback
from rq.job import Retry
from rq.rate_limit import RateLimit
from rq.repeat import Repeat
from rq.types import JobDependencyType
from rq.webhook import Webhook

from envq.errors import ConfigurationError
from envq.jobs.job import OnCrash

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


def checked(given: Mapping[str, Any]) -> JobOptions:
    """The same options, ``job_timeout`` under its other name; ConfigurationError for what cannot be used."""
    for name in given:
        if name not in NAMES:
            raise _unknown(name)
    options = dict(given)
    if "job_timeout" in options:
        options.setdefault("timeout", options.pop("job_timeout"))
    if isinstance(options.get("retry"), int):
        options["retry"] = Retry(options["retry"]) if options["retry"] else None
    if options.get("on_crash", "requeue") not in ("requeue", "fail"):
        raise ConfigurationError(f"on_crash={options['on_crash']!r} must be 'requeue' or 'fail'")
    return cast(JobOptions, options)


def _unknown(name: str) -> ConfigurationError:
    close = get_close_matches(name, NAMES, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return ConfigurationError(f"unknown option {name!r}{hint} (known: {', '.join(sorted(NAMES))})")
