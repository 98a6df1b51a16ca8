"""RQ's worker classes with envq's worker inside.

What RQ's tests call ``Worker`` runs a whole ``envq worker``, supervisor and all, in a process forked from the test, so
that the test's modules are there; what they call ``SimpleWorker`` runs one executor in the test's own process.
Everything but ``work`` is RQ's own: its classes are what reads the record of a worker, and they read that of ours.
"""

from __future__ import annotations

import ctypes
import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import redis
import rq.job
import rq.worker
from rq.scheduler import RQScheduler

from envq.driver.client import driver_scope, swap_default
from envq.environment import bind
from envq.settings import Settings
from envq.store import events
from envq.store.connection import database_number
from envq.store.keys import Keys
from envq.workers.config import ExecutorConfig, WorkerConfig
from envq.workers.executor import Executor
from envq.workers.ledger import Ledger
from envq.workers.slot import Slot
from envq.workers.supervision.stopping import EXIT_COLD
from envq.workers.supervision.supervisor import Supervisor

PATIENCE_S = 15.0  # RQ's tests wait for a worker that goes on working as long as it likes
COLD_STOP_S = 3.0
PR_SET_PDEATHSIG = 1
FORK = multiprocessing.get_context("fork")
RUNS = FORK.Value("i", 0)  # how often a worker of ours ran, here and in processes forked from here


@dataclass(frozen=True)
class NamedWorker(WorkerConfig):
    """Its first executor has the name that RQ's test gave to its worker."""

    first_name: str = ""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def executor(self, number: int, supervisor_pid: int, max_jobs: int | None) -> ExecutorConfig:
        before = next(self._numbers)
        name = f"{self.first_name}.{before}" if before else self.first_name
        return ExecutorConfig(self, name, number, supervisor_pid, max_jobs)


class EnvqWork:
    """In place of RQ's ``work``."""

    queue_class: type[rq.Queue] = rq.Queue  # of the client's side: a test compares it with what it imported
    job_class: type[rq.job.Job] = rq.job.Job
    name: str
    connection: redis.Redis
    queues: list[Any]
    _stop_requested: bool

    def work(self, burst: bool = False, **options: Any) -> bool:
        """Whether a job ran. RQ's options for logging and the order of queues have no counterpart and are left out."""
        if options.get("with_scheduler"):
            self.scheduler = RQScheduler(self.queues, connection=self.connection)  # not started: a handle on its keys
        keys = Keys("default", database_number(self.connection))
        before = events.last_position(self.connection, keys)
        with RUNS.get_lock():
            RUNS.value += 1
        self.run(self._config(burst, options))
        entries: Any = self.connection.xrange(keys.events, min=f"({before}")
        return any(b'"job.' in text for _, fields in entries for text in fields.values())

    def run(self, config: NamedWorker) -> None:
        raise NotImplementedError

    def _config(self, burst: bool, options: dict[str, Any]) -> NamedWorker:
        return NamedWorker(
            Settings(url=f"redis://127.0.0.1:6379/{database_number(self.connection)}"),
            queues=tuple(queue.name for queue in self.queues),
            burst=burst,
            scheduler=bool(options.get("with_scheduler")),
            max_jobs=options.get("max_jobs"),
            max_idle_s=options.get("max_idle_time"),
            configure_logging=False,
            start_method="fork",
            first_name=self.name,
        )


class Worker(EnvqWork, rq.worker.Worker):
    """For rq.Worker, which forks."""

    def run(self, config: NamedWorker) -> None:
        process = FORK.Process(target=_supervise, args=(config,))
        process.start()

        def pass_on(number: int, _frame: object) -> None:
            self._stop_requested = True
            with suppress(ProcessLookupError):
                os.kill(process.pid or 0, number)

        before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            process.join(PATIENCE_S)
            overdue = process.is_alive()
            for _ in range(2):
                if process.is_alive():
                    process.terminate()
                    process.join(COLD_STOP_S)
            process.kill()
            process.join()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if process.exitcode == EXIT_COLD:
            raise SystemExit(EXIT_COLD)
        assert not overdue, f"envq's worker still ran after {PATIENCE_S:g} s"


class SimpleWorker(EnvqWork, rq.worker.SimpleWorker):
    """For rq.SimpleWorker, which runs jobs in its own process."""

    def run(self, config: NamedWorker) -> None:
        ours, control = FORK.Pipe()
        overdue = threading.Event()

        def give_up() -> None:
            overdue.set()
            ours.send_bytes(b"stop")

        timer = threading.Timer(PATIENCE_S, give_up)
        timer.start()
        try:
            with _process_as_before():
                Executor(config.executor(1, os.getpid(), config.max_jobs), Slot(FORK), Ledger(FORK), control).run()
        finally:
            timer.cancel()
            ours.close()
            control.close()
        assert not overdue.is_set(), f"envq's executor still ran after {PATIENCE_S:g} s"


def _supervise(config: NamedWorker) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    sys.exit(Supervisor(config).run())


@contextmanager
def _process_as_before() -> Iterator[None]:
    """An executor owns its process; give it back to the test."""
    handlers = {
        number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGUSR1)
    }
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # its alarm would end a process without its handler
        signal.set_wakeup_fd(-1)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        swap_default(None)
        bind(driver_scope)
