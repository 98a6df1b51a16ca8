"""Starts the delaying proxy, and says by which URL the server is reached through it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from envq.child_process import start_bound, stop
from envq.errors import ConfigurationError, EnvqError
from envq.store.connection import connection_options, driver_client

PATIENCE_S: Final = (2.0,)
_PLACE: Final = ("host", "port", "path")  # options of a URL that say where the server is


def check_delayable(url: str) -> None:
    """Raise ConfigurationError for TLS: the name in the certificate would not be that of the proxy."""
    if url.startswith("rediss://"):
        raise ConfigurationError(
            "--rtt-ms cannot delay an encrypted connection (rediss://): give a redis:// or unix:// URL, "
            "or leave --rtt-ms out"
        )


@contextmanager
def delayed(url: str, rtt_ms: float) -> Generator[str]:
    """The URL by which a round trip takes so many milliseconds longer; with 0 the same one, and nothing is started."""
    if not rtt_ms:
        yield url
        return
    options = connection_options(driver_client(url))
    command = [sys.executable, "-P", "-m", "envq.cli.benchmark.delay_proxy", f"{rtt_ms / 2:g}", *_target(options)]
    process = start_bound(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        with process.stdout as told:
            port = told.readline().strip()
        if not port:
            raise EnvqError("the delaying proxy of --rtt-ms did not start")
        yield through(url, int(port))
    finally:
        stop(process, patience_s=PATIENCE_S)


def _target(options: Mapping[str, Any]) -> list[str]:
    if path := options.get("path"):
        return [str(path)]
    return [str(options.get("host") or "localhost"), str(options.get("port") or 6379)]


def through(url: str, port: int) -> str:
    """The same user, database and options, at a port of this host."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    path = "" if parts.scheme == "unix" else parts.path
    query = urlencode([(name, value) for name, value in parse_qsl(parts.query) if name not in _PLACE])
    return urlunsplit(("redis", f"{user}{at}127.0.0.1:{port}", path, query, ""))
