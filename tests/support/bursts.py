"""Bursts of workers in forked copies of one process that has imported everything, so that one takes no second.

Stock RQ and ours alike run in a fresh process until their queues are empty.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import redis
import rq

from envq.settings import Settings
from envq.workers.config import WorkerConfig
from envq.workers.executor import Executor
from envq.workers.ledger import Ledger
from envq.workers.slot import Slot
from support.processes import Process

TESTS = Path(__file__).parents[1]
REPLY_TIMEOUT_SECONDS = 30
ORDERS, REPLIES = "bursts:orders", "bursts:replies"


class Bursts:
    """The process they are forked from; its orders and replies are lists in a database of their own."""

    def __init__(self, url: str, directory: Path) -> None:
        program = (
            f"import sys; sys.path.insert(0, {str(TESTS)!r}); from support import bursts; bursts.serve(sys.argv[1])"
        )
        self._redis = redis.Redis.from_url(url)
        self._process = Process(
            [sys.executable, "-c", program, url], cwd=directory, output_file=directory / "bursts.log"
        )

    def run(self, kinds: Mapping[str, str], queues: Iterable[str], wanted: int) -> None:
        """One burst of each kind ("stock", "batches", "through-rq") on the database of that URL, side by side."""
        order = {"kinds": dict(kinds), "queues": list(queues), "wanted": wanted}
        self._redis.rpush(ORDERS, json.dumps(order))
        reply = self._redis.blpop(REPLIES, timeout=REPLY_TIMEOUT_SECONDS)
        assert reply is not None, f"a burst hangs:\n{self._process.output}"
        codes = json.loads(reply[1])
        assert not any(codes.values()), f"bursts ended with {codes}:\n{self._process.output}"

    def end(self) -> None:
        try:
            self._process.end()
        finally:
            self._redis.close()


def serve(url: str) -> None:
    logging.basicConfig(level=logging.WARNING)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    with redis.Redis.from_url(url) as client:
        while True:
            order = client.blpop(ORDERS, timeout=1)
            if order is not None:
                client.rpush(REPLIES, json.dumps(_run(**json.loads(order[1]))))


def _run(kinds: dict[str, str], queues: list[str], wanted: int) -> dict[str, int]:
    """The exit code of each."""
    pids = {kind: _fork(kind, url, queues, wanted) for kind, url in kinds.items()}
    return {kind: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for kind, pid in pids.items()}


def _fork(kind: str, url: str, queues: list[str], wanted: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    with contextlib.suppress(BaseException):
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            code = _stock(url, queues) if kind == "stock" else _ours(url, queues, wanted, kind == "through-rq")
        except BaseException:
            traceback.print_exc()
            raise
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class DeafWorker(rq.SimpleWorker):
    """RQ's own, but for its commands: to end the thread that hears them takes up to a second."""

    def subscribe(self) -> None:
        """Hear nothing."""


def _stock(url: str, queues: list[str]) -> int:
    DeafWorker(queues, connection=redis.Redis.from_url(url)).work(burst=True, logging_level="WARNING")
    return 0


def _ours(url: str, queues: list[str], wanted: int, through_rq: bool) -> int:
    context = multiprocessing.get_context("fork")
    worker = WorkerConfig(Settings(url=url), queues=tuple(queues), burst=True, scheduler=False, through_rq=through_rq)
    _, control = context.Pipe()
    executor: Any = Executor(worker.executor(1, os.getpid(), None), Slot(context), Ledger(context), control)
    executor._pace.wanted = 1 if through_rq else wanted  # as after many short jobs
    return executor.run()
