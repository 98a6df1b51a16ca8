"""The work that every peer runs, and how a job leaves its mark.

A job appends one record of 24 bytes (one write(2) with O_APPEND, about 1 µs) to the file named by BENCH_RECORDS. No
Redis command is spent on counting, it works for processes, threads and coroutines alike, and the reader gets the
exact time of every job and which process ran it.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

RECORD = struct.Struct("<iiiiq")
NOOP, START, END = 0, 1, 2

CONFIG = os.environ.get("BENCH_CONFIG")  # None in the harness; set in producers and workers
URL = os.environ.get("BENCH_URL", "")
RESULT_TTL_S = 600

_file: int | None = None


class Record(NamedTuple):
    """The mark of one job."""

    pid: int
    kind: int
    sequence: int
    parent: int
    at_ns: int  # time.monotonic_ns(), one clock for all processes of a machine


def mark(kind: int, sequence: int) -> None:
    """Append one record."""
    global _file
    if _file is None:
        _file = os.open(os.environ["BENCH_RECORDS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(_file, RECORD.pack(os.getpid(), kind, sequence, os.getppid(), time.monotonic_ns()))


def read_records(path: Path) -> list[Record]:
    """All whole records, in the order they were written."""
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = len(data) // RECORD.size * RECORD.size
    return [Record(*fields) for fields in RECORD.iter_unpack(data[:whole])]


def count_records(path: Path) -> int:
    """How many there are, at the cost of one stat(2)."""
    return path.stat().st_size // RECORD.size if path.exists() else 0


def noop(i: int, _payload: bytes = b"") -> int:
    mark(NOOP, i)
    return i


def stamp(i: int) -> int:
    mark(START, i)
    mark(END, i)
    return i


def sleeper(i: int, seconds: float) -> int:
    mark(START, i)
    time.sleep(seconds)
    mark(END, i)
    return i


async def anoop(i: int) -> int:
    return noop(i)


async def astamp(i: int) -> int:
    return stamp(i)


async def asleeper(i: int, seconds: float) -> int:
    mark(START, i)
    await asyncio.sleep(seconds)
    mark(END, i)
    return i


class Peer:
    """
    One queue; a module ``peer_NAME`` holds its subclass ``Peer``.

    Each configuration is a dictionary: ``label``, ``role`` (``"default"``: as its documentation starts it;
    ``"fast"``: the fastest we found that keeps results), ``n`` (jobs of one drain, absent: tried out first),
    ``lat_n`` (samples of one round of latency), ``venv`` where it is not the peer's.
    """

    name: ClassVar[str]
    venv: ClassVar[str]  # folder in $PEERS_VENVS
    is_async: ClassVar[bool] = False  # the producer's methods are coroutine functions
    bulk: ClassVar[str | None] = None  # "native"; "gather": 50 calls at once; None: it has no way
    keeps_record: ClassVar[bool] = False  # a job that waits can be looked up by its id
    configs: ClassVar[dict[str, dict[str, Any]]]

    def __init__(self, config: str, url: str = "") -> None:
        self.key = config
        self.config = self.configs[config]
        self.url = url

    # In the producer, inside the peer's own environment.

    def open(self) -> Any:
        """Connect."""

    def close(self) -> Any:
        """Disconnect."""

    def enqueue(self, fn: str, *args: Any) -> Any:
        """One job of ``noop``, ``stamp`` or ``sleeper``; returns a handle for ``wait`` and ``state``."""
        raise NotImplementedError

    def enqueue_many(self, fn: str, arguments: Sequence[tuple[Any, ...]]) -> Any:
        """Many jobs in the peer's own bulk call."""
        raise NotImplementedError

    def wait(self, handle: Any, timeout: float) -> Any:
        """Block for the result in the peer's own way."""
        raise NotImplementedError

    def state(self, handle: Any) -> Any:
        """What the peer itself says about a job: a short text."""
        return "no API for it"

    # In the harness, where the peer cannot be imported.

    def worker_commands(self, bin_folder: str, n: int) -> list[tuple[list[str], dict[str, str]]]:
        """The commands, each with variables for its environment, that make n worker processes."""
        raise NotImplementedError
