"""What jobs of one function with the same options have in common; read from the first of them, once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as quoted
from typing import Final

from rq.job import JobStatus

from envq.jobs.enqueue_options import LONGEST_TTL_S
from envq.jobs.time_limit import stored_limit

DEFAULT_RESULT_TTL_S: Final = 500
KEPT: Final = 1024

_DATE: Final = re.compile(rb"(\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\d(\.\d{6})?Z)*").fullmatch
_READ: Final = frozenset(  # those that are checked here, or by whoever asks for them
    {b"created_at", b"enqueued_at", b"data", b"origin", b"description", b"status", b"timeout", b"result_ttl", b"meta",
     b"envq_timeout", b"envq_on_crash", b"envq_code", b"envq_alone",
     b"envq_signature", b"envq_meta_signature"}
)  # fmt: skip
_THROUGH_RQ: Final = (b"success_callback_name", b"webhooks", b"repeats_left", b"rate_limit_key", b"group_id")
_STATUSES: Final = frozenset(status.value.encode() for status in JobStatus)


@dataclass(slots=True)
class Kind:
    """
    Attributes:
        time_limit: seconds, None for no limit
        result_ttl: seconds, 0 to keep nothing, -1 for ever
        unusual: names of fields that are mostly empty
        told: queue and function, as an event tells them
        batchable: a success may be stored with others, unless an unusual field says otherwise
    """

    queue: str
    title: str
    time_limit: float | None
    result_ttl: int
    unusual: tuple[bytes, ...]
    told: str
    batchable: bool


def kind_of(fields: Mapping[bytes, bytes]) -> Kind:
    """Of a stored hash; ValueError for a number or text that is none."""
    get = fields.get
    key = (*fields, get(b"origin"), get(b"description"), get(b"timeout"), get(b"envq_timeout"), get(b"result_ttl"))
    kind = _kinds.get(key)
    if kind is None:
        if len(_kinds) >= KEPT:
            _kinds.clear()
        kind = _kinds[key] = _read(fields)
    return kind


def is_ordinary(fields: Mapping[bytes, bytes], kind: Kind) -> bool:
    """Whether RQ can read this record, as far as that can be seen at a glance, and it holds nothing unusual."""
    get = fields.get
    return (
        not (kind.unusual and any(map(get, kind.unusual)))
        and _DATE(get(b"created_at", b"") + get(b"enqueued_at", b"")) is not None
        and bool(get(b"data"))
        and get(b"status") in _STATUSES
    )


def goes_through_rq(fields: Mapping[bytes, bytes]) -> bool:
    """Its success takes more than its record: a callback, a webhook, a repeat, a rate limit, a group."""
    return any(map(fields.get, _THROUGH_RQ))


def _read(fields: Mapping[bytes, bytes]) -> Kind:
    queue = fields.get(b"origin", b"").decode()
    # Stock clients put arguments behind the name, which belong in no log.
    title = fields.get(b"description", b"").decode().partition("(")[0] or "unknown"
    timeout, exact, result_ttl = (fields.get(name) for name in (b"timeout", b"envq_timeout", b"result_ttl"))
    keep_s = int(result_ttl) if result_ttl else DEFAULT_RESULT_TTL_S
    return Kind(
        queue=queue,
        title=title,
        time_limit=stored_limit(float(timeout) if timeout else None, float(exact) if exact else None),
        result_ttl=keep_s,
        unusual=tuple(fields.keys() - _READ),
        told=f'"queue":{quoted(queue)},"func":{quoted(title)}',
        batchable=-1 <= keep_s <= LONGEST_TTL_S,
    )


_kinds: dict[tuple[bytes | None, ...], Kind] = {}
