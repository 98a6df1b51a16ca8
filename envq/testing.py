"""Tests without a server: ``envq.testing.inline()`` runs jobs in this process."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NoReturn, cast

import redis
from rq.job import JobStatus

from envq import client, environment
from envq.client import Client
from envq.code_store import CodeStore
from envq.declarations import DeclarationStore, Snapshot
from envq.driver import DriverScope
from envq.errors import CodeMissing, ConfigurationError
from envq.executor_store import ExecutorStore
from envq.inline import InlineRuns
from envq.inline_job import InlineJob, run_inline
from envq.keys import Keys
from envq.payload import Blob
from envq.records import Declaration
from envq.settings import Settings


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
    over. Arguments and results are copied by pickling, as on their way to a worker. What was declared
    before is not visible; nothing declared inside remains.

    A job that raises is kept as failed, and ``envq.get`` raises JobFailed, caused by the exception itself.
    Retries run at once. What is enqueued for later waits for ``Inline.run_scheduled``. Timeouts and rate
    limits do not apply. Meant for one test at a time in a process.
    """
    inside = InlineClient()
    scope = inside.scope
    before = client.swap_default(inside)
    scope_before = environment.bind(scope)
    scope.connected(inside)
    try:
        yield Inline(inside)
    finally:
        environment.bind(scope_before)
        client.swap_default(before)
        inside.inline.close()
        scope.close()


class InlineClient(Client):
    """A client without a server: what it stores, it stores here."""

    def __init__(self) -> None:
        self.settings = Settings.load()
        self.keys = Keys(self.settings.namespace)
        self.connection = cast(redis.Redis, NoServer())
        self.declarations = InlineDeclarations(self.connection, self.keys)
        self.code = InlineCode(self.connection, self.keys)
        self.executors = ExecutorStore(self.connection, self.keys)
        self.scope = DriverScope(lambda: self)
        self.inline = InlineRuns(lambda: self.scope.recipes(self))
        self.jobs_here = {}


class InlineCode(CodeStore):
    """Packed code in memory."""

    def __init__(self, connection: redis.Redis, keys: Keys) -> None:
        super().__init__(connection, keys)
        self._blobs: dict[str, Blob] = {}

    def get(self, digest: str, what: str) -> Blob:
        """The blob; raises CodeMissing."""
        if digest not in self._blobs:
            raise CodeMissing(f"the code of {what} (digest {digest[:12]}) was not packed here")
        return self._blobs[digest]

    def ensure(self, blob: Blob, *, for_s: int = 0) -> None:
        """Keep it."""
        self._blobs[blob.header.digest] = blob

    def keep(self, blob: Blob) -> None:
        """Keep it."""
        self.ensure(blob)


class InlineDeclarations(DeclarationStore):
    """The store's own rules over a dictionary."""

    def __init__(self, connection: redis.Redis, keys: Keys) -> None:
        super().__init__(connection, keys)
        self._code = InlineCode(connection, keys)
        self._headers: dict[str, str] = {}

    def snapshot(self) -> Snapshot:
        """Everything declared."""
        return Snapshot("", {name: Declaration.from_json(header) for name, header in self._headers.items()})

    def _header(self, name: str) -> str:
        return self._headers.get(name, "")

    def _write(self, name: str, expected: str, header: str, new: str, old: str, blob: bytes) -> bool:  # noqa: PLR0913 - as in the store
        if header:
            self._headers[name] = header
        else:
            self._headers.pop(name)
        if blob:
            self._code.ensure(Blob.unpack(blob))
        return True


class NoServer:
    """Stands where a connection would; whoever uses it is told why there is none."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ConfigurationError(f"inside envq.testing.inline() there is no server, so {name!r} cannot be asked of it")
