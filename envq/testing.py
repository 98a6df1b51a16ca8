"""Tests without a server: ``envq.testing.inline()`` runs jobs in this process."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NoReturn, cast

import redis
from rq.job import JobStatus

from envq.code.payload import Blob
from envq.driver.client import Client, driver_scope, swap_default
from envq.driver.inline import InlineRuns
from envq.driver.scope import DriverScope
from envq.environment import bind
from envq.errors import ConfigurationError
from envq.jobs.inline_job import InlineJob, run_inline
from envq.settings import Settings
from envq.store.code_store import CodeStore
from envq.store.declarations import (
    Published,
    Snapshot,
    _decide,  # pyright: ignore[reportPrivateUsage] - the same rules, without a server
    not_declared,
)
from envq.store.executor_store import ExecutorStore
from envq.store.keys import Keys
from envq.store.records import Declaration


class Inline:
    """What happened inside ``inline()``."""

    def __init__(self, inside: InlineClient) -> None:
        self._client = inside
        self._jobs: dict[str, Any] = {}
        inside.jobs_here = self._jobs

    @property
    def jobs(self) -> list[InlineJob]:
        """All jobs enqueued so far, in order."""
        return list(self._jobs.values())

    def run_scheduled(self) -> list[InlineJob]:
        """Run what was enqueued for later, in the order it was enqueued; returns those jobs."""
        due = [job for job in self.jobs if job.get_status() == JobStatus.SCHEDULED]
        for job in due:
            run_inline(job, self._client.inline, self._jobs)
        return due


@contextmanager
def inline() -> Generator[Inline]:
    """
    Inside, nothing is sent anywhere: enqueued jobs run at once in this process.

    Variables live as on a worker, on copies of their own: built at the first read, reset after each job that
    used them. The code they are built with is the driver's own, so that a test may look at what it closes
    over. Arguments and results are copied by pickling, as on their way to a worker. What this process declared
    before is there, on copies of its own; nothing declared inside remains.

    A job that raises is kept as failed, and ``envq.get`` raises JobFailed, caused by the exception itself.
    Retries run at once. What is enqueued for later waits for ``Inline.run_scheduled``. Timeouts and rate
    limits do not apply. Meant for one test at a time in a process.
    """
    inside = InlineClient()
    scope = inside.scope
    before = swap_default(inside)
    scope_before = bind(scope)
    try:
        scope.connected(inside)
        outside = scope_before if isinstance(scope_before, DriverScope) else driver_scope
        scope.take_over(outside.declared(), inside)
        yield Inline(inside)
    finally:
        bind(scope_before)
        swap_default(before)
        inside.inline.close()
        scope.close()


class InlineClient(Client):
    """A client without a server: what it stores, it stores here."""

    def __init__(self) -> None:
        self.settings = Settings.load()
        self.keys = Keys(self.settings.namespace)
        self.connection = cast(redis.Redis, NoServer())
        self.declarations = cast(Any, InlineDeclarations())
        self.code = CodeStore(self.connection, self.keys)
        self.executors = ExecutorStore(self.connection, self.keys)
        self.scope = DriverScope(lambda: self)
        self.inline = InlineRuns(lambda: self.scope.recipes(self))
        self.jobs_here = {}


class InlineDeclarations:
    """Declarations in memory, under the store's own rules."""

    def __init__(self) -> None:
        self._declared: dict[str, Declaration] = {}
        self._blobs: dict[str, Blob] = {}

    def snapshot(self, *, checked: bool = False) -> Snapshot:
        """Everything declared."""
        return Snapshot("", dict(self._declared))

    def generation(self) -> str:
        """No store that could forget."""
        return ""

    def get(self, name: str) -> Declaration:
        """One declaration; raises NotDeclared."""
        if name not in self._declared:
            raise not_declared(name, self._declared)
        return self._declared[name]

    def code(self, declaration: Declaration) -> Blob:
        """The packed code of a declaration."""
        return self._blobs[declaration.digest]

    def publish(self, wanted: Declaration, blob: Blob) -> Published:
        """Declare, as the store would."""
        published = _decide(self._declared.get(wanted.name), wanted)
        self._declared[wanted.name] = published.declaration
        self._blobs.setdefault(blob.header.digest, blob)
        return published

    def remove(self, name: str) -> Declaration:
        """Take a declaration away; raises NotDeclared."""
        removed = self.get(name)
        del self._declared[name]
        return removed


class NoServer:
    """Stands where a connection would; whoever uses it is told why there is none."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ConfigurationError(f"inside envq.testing.inline() there is no server, so {name!r} cannot be asked of it")
