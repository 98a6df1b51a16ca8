"""Settings: frozen values, and the only place that reads the process environment."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from envq.errors import ConfigurationError

DEFAULT_URL: Final = "redis://localhost:6379/0"
DEFAULT_NAMESPACE: Final = "default"
DEFAULT_RETRY_FOR_S: Final = 5.0
KIB: Final = 1024
MIB: Final = 1024 * KIB
SHORTEST_KEY: Final = 16  # characters of a signing key

_NAMESPACE = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Limits:
    """Sizes of pickled code and pickled arguments, in bytes."""

    warn_bytes: int = 256 * KIB
    max_bytes: int = 16 * MIB


@dataclass(frozen=True)
class Settings:
    """What every process of a deployment needs to know; workers add their own on top."""

    url: str = field(default=DEFAULT_URL, repr=False)  # may hold a password
    url_source: str = "the default"
    namespace: str = DEFAULT_NAMESPACE
    limits: Limits = field(default_factory=Limits)
    retry_for_s: float = DEFAULT_RETRY_FOR_S  # a driver tries so long to reach Redis, then raises

    @classmethod
    def load(
        cls,
        *,
        url: str | None = None,
        namespace: str | None = None,
        retry_for_s: float | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> Settings:
        """
        Arguments first, then ``ENVQ_URL``, ``REDIS_URL``, ``ENVQ_NAMESPACE``, ``ENVQ_RETRY_FOR``, then the defaults.

        Raises ConfigurationError for a namespace, a limit or a time that cannot be used.
        """
        chosen, source = _first_url(url, environ)
        return cls(
            url=chosen,
            url_source=source,
            namespace=valid_namespace(namespace or environ.get("ENVQ_NAMESPACE") or DEFAULT_NAMESPACE),
            retry_for_s=_seconds("ENVQ_RETRY_FOR", retry_for_s, DEFAULT_RETRY_FOR_S, environ),
            limits=Limits(
                warn_bytes=_positive_int("ENVQ_WARN_PAYLOAD_BYTES", Limits.warn_bytes, environ),
                max_bytes=_positive_int("ENVQ_MAX_PAYLOAD_BYTES", Limits.max_bytes, environ),
            ),
        )


def valid_namespace(namespace: str) -> str:
    """The namespace itself; ConfigurationError if it holds anything but letters, digits and ``_ . -``."""
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"namespace {namespace!r} may hold only letters, digits and the signs _ . -")
    return namespace


def signing_keys(name: str, environ: Mapping[str, str] = os.environ) -> tuple[bytes, ...]:
    """
    The keys in this variable, or in the file that the variable ``NAME_FILE`` names; none where neither is set.

    Several are separated by commas or white space; the first signs, all verify. Raises ConfigurationError for a file
    that cannot be read and a key that is too short, never showing a key.
    """
    text, source = environ.get(name, ""), name
    if path := environ.get(f"{name}_FILE"):
        source = f"{name}_FILE={path}"
        if text:
            raise ConfigurationError(f"both {name} and {name}_FILE are set; set one of them")
        try:
            text = Path(path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ConfigurationError(f"{source} cannot be read: {reason}") from None
        if not text.strip():
            raise ConfigurationError(f"{source} is empty; write a key into it, as from `openssl rand -hex 32`")
    keys = tuple(key.encode() for key in text.replace(",", " ").split())
    if any(len(key) < SHORTEST_KEY for key in keys):
        raise ConfigurationError(
            f"a key in {source} is shorter than {SHORTEST_KEY} characters; make one with `openssl rand -hex 32`"
        )
    return keys


def set_worker_identity(worker_name: str) -> None:
    """Tell the jobs of this process who runs them, under the name RQ's own workers use."""
    os.environ["RQ_WORKER_ID"] = worker_name


def set_job_identity(job_id: str) -> None:
    """Tell the running job who it is, in the same way."""
    _job_variable().write(job_id)


class _JobVariable:
    """
    ``RQ_JOB_ID``, for this process and those it starts, in memory that is written anew for each job.

    ``os.environ[...] =`` calls setenv, and the C library keeps every value that it was ever given.
    """

    _NAME: Final = b"RQ_JOB_ID"
    _SIZE: Final = 512

    def __init__(self) -> None:
        import ctypes  # noqa: PLC0415 - drivers do without

        self._memory = ctypes.create_string_buffer(self._SIZE)
        self._put = ctypes.CDLL(None).putenv
        self._python: dict[bytes, bytes] = cast(Any, os.environ)._data  # what os.environ looks into
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._memory))  # the C library keeps it until the process is gone

    def write(self, job_id: str) -> None:
        value = os.fsencode(job_id)
        entry = b"%b=%b" % (self._NAME, value)
        if len(entry) < self._SIZE and b"\0" not in entry:
            self._memory.value = entry
            self._put(self._memory)  # again: the job before may have taken it away
            self._python[self._NAME] = value
        else:
            os.environ[os.fsdecode(self._NAME)] = job_id


@cache
def _job_variable() -> _JobVariable:
    return _JobVariable()


def _first_url(url: str | None, environ: Mapping[str, str]) -> tuple[str, str]:
    for name in ("ENVQ_URL", "REDIS_URL"):
        # The command line has read the variables itself, and gives what it found as the argument.
        if environ.get(name) and url in (None, "", environ[name]):
            return environ[name], name
    if url:
        return url, "the argument"
    return DEFAULT_URL, "the default"


def _positive_int(name: str, default: int, environ: Mapping[str, str]) -> int:
    text = environ.get(name)
    if not text:
        return default
    if not text.isdigit() or int(text) == 0:
        raise ConfigurationError(f"{name}={text!r} is not a positive whole number of bytes")
    return int(text)


def _seconds(name: str, given: float | None, default: float, environ: Mapping[str, str]) -> float:
    text = str(given) if given is not None else environ.get(name)
    if not text:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        what = "retry_for" if given is not None else name
        raise ConfigurationError(f"{what}={text!r} is not a number of seconds, 0 or more")
    return seconds
