"""Jobs in this process: the variables they see, with the life cycle they have in an executor."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from envq.code.digest import code_digest
from envq.driver.coroutines import runner
from envq.environment import bound
from envq.errors import EnvironmentVariableError, InvalidDeclaration
from envq.runtime import Listener, NoLimits, Recipe, Runtime
from envq.variables import EnvironmentVariable

log = logging.getLogger("envq.env")


class InlineRuns:
    """
    Variables of jobs that run in this process, on copies of their own, apart from the driver's.

    One job at a time, as in an executor. A job that runs another one in this process gets a second set of
    values for it, as if another executor ran it: nobody sees what a job that has not ended changed.

    Args:
        recipes: what is declared now; asked before each job
    """

    def __init__(self, recipes: Callable[[], Mapping[str, Recipe]]) -> None:
        self._recipes = recipes
        self._lock = threading.RLock()
        self._levels: list[_JobScope] = []
        self._depth = 0

    @contextmanager
    def job(self, job_id: str) -> Generator[None]:
        """Run one job inside the block: ``envq.env`` gives the values, and they are reset when it ends."""
        # Bound for the resets and rebuilds around the job too: what they read are these copies, not the driver's.
        with self._lock, self._level() as level, bound(level):
            # Lazily: a process that only tests some jobs does not want to build for all the others.
            level.adopt({name: replace(recipe, build="lazy") for name, recipe in self._recipes().items()})
            level.runtime.begin_job(job_id)
            try:
                yield
            finally:
                level.runtime.end_job()

    def close(self) -> None:
        """Tear all values down."""
        with self._lock:
            while self._levels:
                with bound(self._levels[-1]):
                    self._levels.pop().runtime.close()

    def after_fork(self) -> None:
        """In a child: another thread of the parent may have held the lock."""
        self._lock = threading.RLock()

    @contextmanager
    def _level(self) -> Generator[_JobScope]:
        if self._depth == len(self._levels):
            runtime = Runtime(listener=Listener(), limits=NoLimits(), run_coroutine=runner.run)
            self._levels.append(_JobScope(runtime))
        self._depth += 1
        try:
            yield self._levels[self._depth - 1]
        finally:
            self._depth -= 1


class _JobScope:
    """What ``envq.env`` means to a job that runs in this process: as in an executor, it only reads."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._recipes: Mapping[str, Recipe] = {}

    def adopt(self, recipes: Mapping[str, Recipe]) -> None:
        """Change over to what is declared now."""
        self._recipes = recipes
        self.runtime.adopt(recipes)
        self.runtime.retry_due()

    def declare(self, name: str, variable: object) -> None:
        """Nothing for what is declared already; anything else is ignored with a warning (C20)."""
        if not isinstance(variable, EnvironmentVariable):
            raise InvalidDeclaration(f"envq.env.{name} takes an EnvironmentVariable, declared on the driver", name)
        digest = code_digest(variable.callables)
        known = self._recipes.get(name)
        if known is None or known.digest != digest:
            log.warning(
                "environment variable %s: a job assigned other code (%.12s) than what is declared (%.12s); ignored, "
                "because only a driver declares",
                name,
                digest,
                known.digest if known else "nothing",
            )

    def read(self, name: str) -> object:
        return self.runtime.read(name)

    def remove(self, name: str) -> None:
        raise EnvironmentVariableError(f"envq.env.{name} cannot be removed by a job; remove it on a driver", name)

    def names(self) -> list[str]:
        return sorted(self._recipes)
