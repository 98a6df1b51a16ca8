"""One sweep: a quantity, its values, and what is measured at each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from harness.bench import Bench
from harness.results import rounded


@dataclass
class Curves:
    """
    What a sweep has measured.

    Args:
        points: by name of the curve, pairs of the quantity and the figure.
    """

    x: str
    y: str
    points: dict[str, list[tuple[float, float]]]
    x_log: bool = False
    failures: dict[str, str] = field(default_factory=dict[str, str])

    def as_record(self) -> dict[str, Any]:
        """As it is stored."""
        return rounded(asdict(self))


@dataclass(frozen=True)
class Sweep:
    """
    One sweep, in one round: neighbouring points are each other's check.

    Args:
        values: of the quantity; ``quick`` where a run is to be quick.
        curves: names of what is measured at each value.
        at: measures one figure of one curve at one value.
    """

    name: str
    title: str
    x: str
    y: str
    values: Sequence[float]
    quick: Sequence[float]
    curves: Sequence[str]
    at: Callable[[Bench, str, float], float]
    x_log: bool = False

    def measure(self, bench: Bench) -> Curves:
        """All points, the curves interleaved."""
        points: dict[str, list[tuple[float, float]]] = {name: [] for name in self.curves}
        for value in self.quick if bench.quick else self.values:
            for name in self.curves:
                figure = bench.attempt(name, self.at, bench, name, value)
                if figure is not None:
                    points[name].append((value, figure))
                    bench.say(f"{self.x} {value:g}: {name} {figure:,.1f} {self.y}")
        return Curves(self.x, self.y, points, self.x_log)
