"""What signatures of jobs and results cover, and what becomes of those that have none."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, Final

from envq.code.signing import Purpose, job_keys, prefix, sign_rest
from envq.errors import PayloadError

SIGNATURE: Final = "envq_signature"
META_SIGNATURE: Final = "envq_meta_signature"

# All that decides what runs and who hears of it. RQ itself writes what is not here while a job lives: times,
# status, how often it may be repeated.
_COVERED: Final = (
    "origin", "timeout", "result_ttl", "failure_ttl", "dependency_ids", "allow_dependency_failures",
    "success_callback_name", "success_callback_timeout", "failure_callback_name", "failure_callback_timeout",
    "stopped_callback_name", "stopped_callback_timeout", "webhooks", "envq_timeout", "envq_on_crash", "envq_code",
)  # fmt: skip
_COVERED_BYTES: Final = tuple(name.encode() for name in _COVERED)
# Left out of a record that is refused: reading them would unpickle, or name code to be run.
_DANGEROUS: Final = frozenset(
    {b"meta", b"result", b"success_callback_name", b"failure_callback_name", b"stopped_callback_name", b"webhooks"}
)


def job_prefix(fields: Mapping[str, Any]) -> bytes:
    """What jobs with these fields have in common; each is signed with its id and call behind it."""
    return prefix(Purpose.JOB, (fields.get(name, "") for name in _COVERED))


def job_signature(beginning: bytes, job_id: str, data: bytes) -> str:
    """Of a job with this pickled call."""
    return sign_rest(job_keys(), beginning, job_id.encode(), data)


def meta_signature(job_id: str, meta: bytes) -> str:
    """Of what ``job.meta`` holds, pickled."""
    return job_keys().sign(Purpose.META, (job_id, meta))


def refusal(job_id: str, fields: Mapping[bytes, bytes]) -> str:
    """Why this stored hash must not be used; "" where it may, as always without a key."""
    keys = job_keys()
    if not keys:
        return ""
    signature = fields.get(SIGNATURE.encode())
    if not signature:
        return f"job {job_id} is not signed; enqueue it with envq and ENVQ_SIGNING_KEY set"
    parts = (*(fields.get(name, b"") for name in _COVERED_BYTES), job_id, _inflated(fields.get(b"data", b"")))
    if not keys.verify(Purpose.JOB, parts, signature):
        return f"the signature of job {job_id} does not fit its record: it was changed, or signed with another key"
    meta = fields.get(b"meta")
    if meta and not keys.verify(Purpose.META, (job_id, meta), fields.get(META_SIGNATURE.encode(), b"")):
        return f"the signature of the meta data of job {job_id} does not fit: somebody without a key changed it"
    return ""


def require_signed(job_id: str, fields: Mapping[bytes, bytes]) -> None:
    """Raise PayloadError for a stored hash that must not be used; before anything of it is unpickled."""
    if reason := refusal(job_id, fields):
        raise PayloadError(reason)


def harmless(fields: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """A refused record without what would be unpickled or run."""
    return {name: value for name, value in fields.items() if name not in _DANGEROUS}


def result_signature(job_id: str, entry: Mapping[str, Any]) -> str:
    """Of an entry in a job's stream of results, as RQ writes it."""
    return job_keys().sign(Purpose.RESULT, (job_id, *(entry.get(name, "") for name in _OF_RESULTS)))


def success_signature(job_id: str, execution_id: str, return_value: bytes) -> str:
    """The same for a success with this value, as RQ stores it; nothing for None."""
    return result_signature(job_id, {"execution_id": execution_id, "type": _SUCCESSFUL, "return_value": return_value})


def check_result(job_id: str, entry: Mapping[bytes, bytes]) -> None:
    """Raise PayloadError for an entry that nobody with a key wrote for this job and execution."""
    keys = job_keys()
    if not keys:
        return
    parts = (job_id, *(entry.get(name.encode(), b"") for name in _OF_RESULTS))
    if not keys.verify(Purpose.RESULT, parts, entry.get(SIGNATURE.encode(), b"")):
        raise PayloadError(
            f"the result of job {job_id} is not signed, or its signature does not fit; it is not loaded. "
            "Do all workers have the ENVQ_SIGNING_KEY of this process?"
        )


_SUCCESSFUL: Final = "1"
_OF_RESULTS: Final = ("execution_id", "type", "return_value", "exc_string")


def _inflated(data: bytes) -> bytes:
    """As RQ reads it; stock tools compress it anew when they save a job, and its signature still fits."""
    try:
        return zlib.decompress(data)
    except zlib.error:
        return data
