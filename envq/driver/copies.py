"""The driver's own copies of variables: built like a worker's, never reset, for the driver is one long task."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from envq.driver.coroutines import runner
from envq.errors import EnvironmentVariableFailed, headline
from envq.runtime import Callables, Limits, Listener, Recipe, Runtime


class DriverCopies:
    """Used under its owner's lock. An initializer may read other copies, also such as are only now put here."""

    def __init__(self) -> None:
        self._errors = _Errors()
        self._recipes: dict[str, Recipe] = {}
        self._runtime = Runtime(listener=_Silent(), limits=self._errors, run_coroutine=runner.run)

    def __contains__(self, name: str) -> bool:
        return name in self._recipes

    def put(self, recipe: Recipe) -> None:
        """
        Have a copy of this; nothing is built before it is read, except in place of a copy of other code.

        Raises what the initializer raises; the copy of before then stays.
        """
        before = self._recipes.get(recipe.name)
        self._recipes[recipe.name] = _for_driver(recipe)
        try:
            self._adopt()
        except BaseException:
            del self._recipes[recipe.name]
            if before is not None:
                self._recipes[recipe.name] = before
            self._adopt()
            raise

    def build(self, name: str) -> None:
        """Build it unless it is there; raises what the initializer raises."""
        try:
            self.read(name)
        except EnvironmentVariableFailed as failed:
            raise failed.__cause__ or failed from None

    def read(self, name: str) -> object:
        """The copy, built at its first read; EnvironmentVariableFailed is caused by the initializer's exception."""
        self._errors.last = None
        try:
            return self._runtime.read(name)
        except EnvironmentVariableFailed:
            cause = self._errors.last
            self._forget_failure(name)
            if cause is None:
                raise
            raise EnvironmentVariableFailed(
                f"environment variable {name!r} could not be built here: {headline(cause)}", name
            ) from cause

    def drop(self, name: str) -> None:
        """Let go of a copy, with its teardown."""
        if self._recipes.pop(name, None) is not None:
            self._runtime.adopt(self._recipes)

    def close(self) -> None:
        """Let go of all of them."""
        self._recipes.clear()
        self._runtime.close()

    def _adopt(self) -> None:
        self._errors.last = None
        self._runtime.adopt(self._recipes)
        if self._errors.last is not None:
            raise self._errors.last

    def _forget_failure(self, name: str) -> None:
        # A worker waits before it tries again; here the caller decides, by reading once more.
        if recipe := self._recipes.pop(name, None):
            self._runtime.adopt(self._recipes)
            self._recipes[name] = recipe
            self._runtime.adopt(self._recipes)


class _Silent(Listener):
    """On a driver nobody tries again by himself: the exception goes to the caller, and says all."""

    def build_failed(self, text: str) -> None:
        pass


class _Errors(Limits):
    """Bounds nothing, but keeps the exception of the last build that raised one."""

    def __init__(self) -> None:
        self.last: BaseException | None = None

    def limit(self, seconds: float | None, what: str) -> AbstractContextManager[None]:
        return self._noting()

    @contextmanager
    def _noting(self) -> Generator[None]:
        try:
            yield
        except BaseException as error:
            self.last = error
            raise


def _for_driver(recipe: Recipe) -> Recipe:
    load: Callable[[], Any] = recipe.load

    def load_for_driver() -> Callables:
        code = Callables(*load())
        return Callables(code.initializer, _unchanged, None, code.teardown)

    return replace(recipe, load=load_for_driver, build="lazy")


def _unchanged(value: object) -> object:
    return value
