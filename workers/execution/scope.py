"""``envq.env`` inside an executor: reads come from its runtime, assignments publish nothing (C20)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from envq.code.digest import code_digest
from envq.errors import EnvironmentVariableError, InvalidDeclaration, PayloadError
from envq.runtime import Runtime
from envq.store.records import Declaration
from envq.variables import EnvironmentVariable
from envq.workers.execution.threads import Threads

log = logging.getLogger("envq.env")


class ExecutorScope:
    """What attribute access on ``envq.env`` means in this process."""

    def __init__(
        self,
        runtime: Runtime,
        declared: Callable[[], Mapping[str, Declaration]],
        note_read: Callable[[str], object],
        threads: Threads,
    ) -> None:
        """``note_read`` is told of the first read of each variable in a job, before it."""
        self._runtime = runtime
        self._note_read = note_read
        self._threads = threads
        self._declared = declared
        self._warned: set[tuple[str, str]] = set()
        self._lock = threading.RLock()

    def read(self, name: str) -> object:
        """
        The value, clean, marked as used; built once, however many of a job's threads ask for it.

        Raises EnvironmentVariableError in a thread whose job has ended: the value is another job's.
        """
        if self._threads.left and (thread := threading.current_thread()) in self._threads.left:
            raise EnvironmentVariableError(
                f"envq.env.{name} is read by the thread {thread.name!r}, whose job has ended; "
                "a job must wait for its threads",
                name,
            )
        with self._lock:
            self._note_read(name)
            return self._runtime.read(name)

    def declare(self, name: str, variable: object) -> None:
        """A job's module that also declares is imported here as well: the same code means nothing new."""
        if not isinstance(variable, EnvironmentVariable):
            raise InvalidDeclaration(
                f"envq.env.{name} takes an EnvironmentVariable, not a {type(variable).__name__}", name
            )
        current = self._declared().get(name)
        try:
            digest = code_digest(variable.callables)
        except PayloadError as error:
            log.debug("declaration of %s in an executor is ignored: %s", name, error)
            return
        if current is not None and current.digest == digest:
            return
        if (name, digest) not in self._warned:
            self._warned.add((name, digest))
            standing = f"version {current.version} ({current.digest[:12]})" if current else "nothing"
            log.warning(
                "environment variable %r is also assigned by code this worker imported (%s), which differs from "
                "what was declared (%s); only drivers declare, so the assignment is ignored",
                name,
                digest[:12],
                standing,
            )

    def remove(self, name: str) -> None:
        """Refused: a job must not take a variable away from under the next one."""
        raise EnvironmentVariableError(
            f"environment variable {name!r} cannot be removed inside a job; use `envq env remove {name}`",
            name,
        )

    def names(self) -> list[str]:
        """Names that can be read here."""
        return sorted(self._declared())
