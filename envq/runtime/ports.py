"""What the runtime needs from outside: limits, a clock, an event loop, a listener."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol

from envq.runtime.recipe import Recipe
from envq.runtime.states import ValueState

logger = logging.getLogger("envq.env")
P = ParamSpec("P")


class TimeLimit(BaseException):
    """Raised by Limits inside user code that ran past its limit; user code should let it pass."""


class Quarantined(Exception):
    """Raised by ``Listener.building`` to refuse a try for good; its text is the reason."""


class Listener:
    """Told what happens; every method may be left as it is. What they raise is logged, unless said."""

    def building(self, recipe: Recipe) -> None:
        """Before each try. Raise Quarantined to refuse it; any other exception makes it a failed try."""

    def build_ended(self, recipe: Recipe) -> None:
        """After each try that ``building`` did not refuse, whatever came of it."""

    def build_failed(self, text: str) -> None:
        """A try failed; the text says why, and what happens next."""
        logger.error("%s", text)

    def changed(self, state: ValueState) -> None:
        """A variable is in another state."""

    def reset_failed(self, name: str, reason: str) -> None:
        """A value could not be put back and is rebuilt (logged already)."""

    def dirty(self, name: str, job: str, function: str) -> None:
        """After this job and its reset the value is not as it was built (logged already); once for each function."""


class Limits(Protocol):
    """Bounds user code in time."""

    def limit(self, seconds: float | None, what: str) -> AbstractContextManager[None]:
        """Raise TimeLimit inside the block when it runs for longer; blocks nest when builds do."""
        ...


class NoLimits:
    """Limits that bound nothing."""

    def limit(self, seconds: float | None, what: str) -> AbstractContextManager[None]:
        return nullcontext()


@dataclass(frozen=True)
class Ports:
    """All of them, as one value."""

    listener: Listener
    limits: Limits
    clock: Callable[[], float]
    run_coroutine: Callable[[Coroutine[Any, Any, Any]], Any]
    fingerprint: Callable[[object], str] | None  # given: resets are compared with the fresh build; may raise
    known_names: Callable[[], Iterable[str]] | None


def tell(listen: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Call a listener; whatever it raises must not keep a value from being built or reset."""
    try:
        listen(*args, **kwargs)
    except Exception:
        logger.exception("a listener of environment variables raised")
