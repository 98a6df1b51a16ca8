"""The place of one name: what is wanted, what is held, and what became of the last try."""

from __future__ import annotations

import math
from collections.abc import Set
from typing import Final

from envq.errors import DependencyCycle, EnvironmentVariableError, EnvironmentVariableFailed
from envq.runtime.calling import traceback_text
from envq.runtime.recipe import Callables, Recipe
from envq.runtime.states import Failure, State, ValueState
from envq.runtime.value import Value

RETRY_DELAYS: Final = (1.0, 2.0, 4.0, 8.0)  # seconds between tries
ATTEMPTS: Final = len(RETRY_DELAYS) + 1


class Slot:
    """State of one variable; what is wanted and what is held differ while an update failed."""

    def __init__(self, recipe: Recipe) -> None:
        self.name = recipe.name
        self.recipe = recipe
        self.value: Value | None = None
        self.failure: Failure | None = None
        self.attempts = 0
        self.building = False
        self.tried = False  # "lazy" postpones the first try only
        self.build_seconds = 0.0
        self.reset_seconds = math.inf  # what the last reset took; not known before
        self.builds = self.resets = self.uses = self.dirty = 0

    def want(self, recipe: Recipe) -> bool:
        """Take a declaration; True if it asks for a build that the one before did not."""
        other = self.differs(recipe)
        self.recipe = recipe
        if other:
            self.start_over()
        elif self.value is not None and not self.differs(self.value.recipe):
            self.value.recipe = recipe  # its timeouts may differ
        return other

    def differs(self, recipe: Recipe) -> bool:
        """Whether it is another version, other code or a request to rebuild."""
        return recipe.identity != self.recipe.identity

    def loaded(self, value: Value) -> Callables | None:
        """The code of what is wanted, where the value was made by the same."""
        return None if self.differs(value.recipe) else value.callables

    def waits_for(self, names: Set[str]) -> bool:
        """Whether it failed for the lack of one of these."""
        return self.failure is not None and not self.failure.waits_for.isdisjoint(names)

    def is_due(self, now: float) -> bool:
        """Whether the time of its next try has come."""
        due = self.failure.next_retry if self.failure is not None else None
        return due is not None and due <= now

    def start_over(self) -> None:
        """Forget what failed: the next try is a first one."""
        self.failure = None
        self.attempts = 0

    def hold(self, value: Value, seconds: float) -> None:
        """A build succeeded; what failed stays noted if it was the build of another version."""
        self.value = value
        self.tried = True
        self.builds += 1
        self.build_seconds = seconds
        if not self.differs(value.recipe):
            self.start_over()

    def fail(self, recipe: Recipe, error: BaseException, missing: frozenset[str], now: float) -> None:
        """A build raised; ``missing`` are the variables that it could not read."""
        self.tried = True
        self.attempts = 1 if self.differs(recipe) else self.attempts + 1
        waits = bool(missing) and isinstance(error, EnvironmentVariableError)
        ended = waits or self.attempts >= ATTEMPTS
        self.failure = Failure(
            identity=recipe.identity,
            text=traceback_text(error),
            attempts=self.attempts,
            next_retry=None if ended else now + RETRY_DELAYS[self.attempts - 1],
            waits_for=missing,
            cycle=str(error) if isinstance(error, DependencyCycle) else "",
        )

    def quarantine(self, recipe: Recipe, reason: str) -> None:
        """Never tried again; another identity starts over."""
        self.tried = True
        self.failure = Failure(identity=recipe.identity, text=reason, quarantined=True)

    @property
    def state(self) -> State:
        """Told from what is there, so that it cannot disagree with it."""
        if self.building:
            return State.BUILDING
        if self.value is not None:
            return State.READY if self.failure is None else State.UPDATE_FAILED
        if self.failure is None:
            return State.DECLARED
        return State.QUARANTINED if self.failure.quarantined else State.FAILED

    def snapshot(self) -> ValueState:
        """What is told to others."""
        version, digest, epoch = self._identity
        return ValueState(
            name=self.name,
            version=version,
            digest=digest,
            epoch=epoch,
            state=self.state,
            error=self.failure.text if self.failure else "",
            build_seconds=self.build_seconds,
            builds=self.builds,
            resets=self.resets,
            uses=self.uses,
            dirty=self.dirty,
        )

    @property
    def _identity(self) -> tuple[int, str, int]:
        if self.value is not None:
            return self.value.recipe.identity
        return self.failure.identity if self.failure else self.recipe.identity

    def error(self) -> EnvironmentVariableError:
        """What a read raises while there is no value."""
        failure = self.failure
        if failure is None:
            return EnvironmentVariableFailed(f"{_named(self.name, self.recipe.version)} is not built", self.name)
        if failure.cycle:
            return DependencyCycle(failure.cycle, self.name)
        return EnvironmentVariableFailed(self.explain(failure), self.name)

    def explain(self, failure: Failure) -> str:
        """The message for people: what failed, what happens next, the initializer's traceback."""
        subject = _named(self.name, failure.identity[0])
        redo = f"declare it anew or run `envq env rebuild {self.name}`"
        if failure.quarantined:
            return f"{subject} is quarantined: {failure.text}; {redo}"
        if failure.next_retry is not None:
            outlook = f"try {failure.attempts} of {ATTEMPTS}, it is tried again"
        elif failure.attempts < ATTEMPTS:
            outlook = f"it is tried again as soon as {', '.join(sorted(failure.waits_for))} can be read"
        else:
            outlook = f"given up after {failure.attempts} tries, {redo}"
        return f"{subject} could not be built ({outlook}):\n{failure.text}"


def _named(name: str, version: int) -> str:
    # A driver's own copy is built before its declaration has a version.
    return f"environment variable {name!r} (version {version})" if version else f"environment variable {name!r}"
