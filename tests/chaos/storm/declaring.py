"""The variables of a storm: declared anew, with another label each time, and one of them unreliable."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from chaos.storm import work
from chaos.storm.patience import until_done

import envq

FAILS_OFTEN: Final = 3  # of the unreliable variable each so-many-th version hardly ever can be built


class Declaring:
    """What is declared; the label of each variable goes up."""

    def __init__(self) -> None:
        self.latest: dict[str, int] = {}

    def declare_all(self) -> None:
        for name in ("steady", "custom", "chained", "shaky"):
            self.declare(name)

    def declare(self, name: str) -> None:
        """The next version; returns once it is known to be there."""
        label = self.latest.get(name, 0) + 1
        variable = _MADE[name](label)
        until_done(lambda: setattr(envq.env, name, variable))
        self.latest[name] = label

    def remove(self, name: str) -> None:
        """It may be gone already."""

        def remove() -> None:
            try:
                delattr(envq.env, name)
            except AttributeError:
                return

        until_done(remove)


def _steady(label: int) -> envq.EnvironmentVariable:
    return envq.EnvironmentVariable(lambda: work.fresh(label), driver="never")


def _custom(label: int) -> envq.EnvironmentVariable:
    return envq.EnvironmentVariable(lambda: work.fresh(label), work.put_back, driver="never")


def _chained(label: int) -> envq.EnvironmentVariable:
    def make() -> dict[str, Any]:
        base = envq.env.steady
        return work.fresh(label if base["items"] else 0)

    return envq.EnvironmentVariable(make, driver="never")


def _shaky(label: int) -> envq.EnvironmentVariable:
    chances = 0.95 if label % FAILS_OFTEN == 0 else 0.3

    def make() -> dict[str, Any]:
        if random.random() < chances:
            raise RuntimeError("it does not want to be built")
        return work.fresh(label)

    return envq.EnvironmentVariable(make, work.put_back, driver="never")


_MADE: Final[dict[str, Callable[[int], Any]]] = {
    "steady": _steady,
    "custom": _custom,
    "chained": _chained,
    "shaky": _shaky,
}
