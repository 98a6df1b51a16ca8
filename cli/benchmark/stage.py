"""What a run needs around it, a worker or somebody else's, and the end of it: stopped, and deleted from Redis."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from envq.cli import signals
from envq.cli.benchmark import cleaning, jobs
from envq.cli.benchmark.backlog import Backlog, Work
from envq.cli.benchmark.options import BenchOptions, VariableUse
from envq.cli.benchmark.workers import OwnWorker, RunningWorkers, Workers
from envq.cli.overview import living
from envq.cli.readiness import readiness
from envq.cli.render import last_line
from envq.cli.target import Target
from envq.driver.client import Client
from envq.environment import env
from envq.errors import ConfigurationError, EnvqError
from envq.store import keys as rq
from envq.store.connection import REDIS_ERRORS
from envq.variables import EnvironmentVariable

DEFAULT_EXECUTORS: Final = 2
BUILD_TIMEOUT_S: Final = 30.0
OWN_QUEUE: Final = "jobs"
HELD_QUEUE: Final = "held"  # nobody listens on it
_POLL_S: Final = 0.02
_REINITIALIZERS: Final = {VariableUse.IDENTITY: jobs.same, VariableUse.RESET: jobs.emptied, VariableUse.REBUILD: None}


@dataclass(frozen=True)
class Stage:
    """Jobs, those who run them, and the variable that the jobs read ("" for none)."""

    target: Target
    backlog: Backlog
    workers: Workers
    variable: str

    def have(self, executors: int) -> None:
        """Return when so many take jobs and hold the variable."""
        self.workers.have(executors)
        deadline = time.monotonic() + BUILD_TIMEOUT_S
        while self.variable and (missing := self._missing()):
            if time.monotonic() > deadline:
                raise EnvqError(f"its variable was not built within {BUILD_TIMEOUT_S:g} s: {missing}")
            time.sleep(_POLL_S)

    def _missing(self) -> str:
        """What is not built yet, "" for nothing; raises EnvqError where a build failed."""
        state = readiness(self.variable, self.target.declarations.snapshot(), living(self.target))
        if state.broken:
            first = state.broken[0]
            raise EnvqError(f"its variable is {first.state} on {first.executor}: {last_line(first.error)}")
        return "" if state.ready and state.ready == len(state.holders) else state.summary


def check_deployment(target: Target) -> None:
    """Raise ConfigurationError where no job would run."""
    if target.connection.exists(rq.SUSPENDED):
        raise ConfigurationError("the workers of this server are suspended; resume them first (rq resume)")


@contextmanager
def own(options: BenchOptions, mark: str, target: Target, client: Client) -> Generator[Stage]:
    """A worker of its own, in the namespace ``mark``, of which nothing is left at the end."""
    cleaning.check_scan(target.connection)
    variable = "bench" if options.variable else ""
    backlog = Backlog(client, target.connection, OWN_QUEUE, HELD_QUEUE, _work(options, variable))
    with tempfile.TemporaryDirectory(prefix=mark) as folder:
        executors = options.executors or DEFAULT_EXECUTORS
        log = Path(folder) / "worker.log"
        settings = replace(client.settings, namespace=mark)
        worker = OwnWorker(target, settings, OWN_QUEUE, executors, mark, options.log_level, log)
        try:
            _declare(options, variable, OWN_QUEUE)
            yield Stage(target, backlog, worker, variable)
        finally:
            signals.ignore()
            worker.stop()
            with _deleting(mark):
                cleaning.clear_own(target.connection, backlog, mark)


@contextmanager
def running(options: BenchOptions, mark: str, target: Target, client: Client) -> Generator[Stage]:
    """The workers of a queue, which has no job of ours at the end."""
    queue = cast(str, options.queue)
    workers = RunningWorkers(target, queue)
    variable = mark.replace("-", "_") if options.variable else ""
    backlog = Backlog(client, target.connection, queue, mark, _work(options, variable))
    known = bool(cast(Any, target.connection).sismember(rq.QUEUES, backlog.queue_key))
    try:
        _declare(options, variable, queue)
        yield Stage(target, backlog, workers, variable)
    finally:
        signals.ignore()
        with _deleting(mark):
            cleaning.clear_running(target.connection, backlog, queue_was_known=known)
            if variable:
                cleaning.remove_variable(target, variable)


def _work(options: BenchOptions, variable: str) -> Work:
    payload = (jobs.incompressible(options.payload),) if options.payload else ()
    if options.variable:
        function = jobs.read if options.variable == VariableUse.IDENTITY else jobs.change
        return Work(function, (variable, options.job_ms), payload)
    if options.job_ms:
        return Work(jobs.wait, (options.job_ms,), payload)
    return Work(jobs.no_op, (), payload)


def _declare(options: BenchOptions, name: str, queue: str) -> None:
    if options.variable:
        reinitializer = _REINITIALIZERS[options.variable]
        setattr(env, name, EnvironmentVariable(jobs.make, reinitializer, queues=[queue], driver="never"))


@contextmanager
def _deleting(mark: str) -> Generator[None]:
    """Says what to do where the server is gone; that it is gone has been said."""
    try:
        yield
    except REDIS_ERRORS as error:
        print(
            f"envq: warning: not everything the benchmark made could be deleted ({error}); "
            f"delete the keys with {mark} in their names",
            file=sys.stderr,
        )
