"""What a row is given: sizes, servers, and drains and producers of any peer by name."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar

from harness.drains import Drained, drain
from harness.processes import Failed, Subject, Workers, produce
from harness.redis_server import RedisServer

ENVQ: Final = "envq:default"
FASTEST: Final = (  # of each peer, the configuration that was fastest and keeps results
    "huey:thread-fast",
    "dramatiq:t1-prefetch",
    "saq:fast",
    "taskiq:stream-fast",
    "arq:fast",
    "streaq:fast",
    "celery:solo",
)
_TRIAL_JOBS: Final = 1000
_FEWEST, _MOST = 500, 100_000
P = ParamSpec("P")
T = TypeVar("T")


class Bench:
    """One run; a context manager, because of its temporary folder."""

    def __init__(self, *, quick: bool) -> None:
        self.quick = quick
        self.rounds = 1 if quick else 3
        self.scale = 0.3 if quick else 1.0
        self.failures: dict[str, str] = {}
        self._trials: dict[str, float] = {}
        self._temporary = tempfile.TemporaryDirectory(prefix="bench-")
        self._folder = Path(self._temporary.name)
        self._records_made = 0

    @property
    def settings(self) -> dict[str, Any]:
        """What figures of two runs must have in common to be compared."""
        return {"quick": self.quick, "rounds": self.rounds, "scale": self.scale}

    def say(self, text: str) -> None:
        """Progress, to stderr."""
        print(f"{time.strftime('%H:%M:%S')}   {text}", file=sys.stderr, flush=True)

    def records(self) -> Path:
        """A file for marks that nobody has written to."""
        self._records_made += 1
        return self._folder / f"records-{self._records_made}"

    def log_of(self, name: str) -> Path:
        """Where the workers of this configuration write."""
        return self._folder / f"{name.replace(':', '-')}.log"

    def interleaved(self, names: Iterable[str]) -> Iterator[str]:
        """Each name once in every round, every second round backwards: a slow moment hits all alike."""
        order = list(names)
        for number in range(self.rounds):
            yield from order if number % 2 == 0 else reversed(order)

    def attempt(self, name: str, measure: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """What it measured; None where a peer failed, which is noted. A failure of envq is raised."""
        try:
            return measure(*args, **kwargs)
        except Failed as error:
            if name.startswith("envq"):
                raise
            self.failures[name] = str(error)
            self.say(f"{name}: {error}")
            return None

    def workers(self, server: RedisServer, name: str, records: Path, n: int = 1, **env: str) -> Workers:
        """Start workers; a context manager that kills them."""
        return Workers(Subject.of(name, server.url()), records, self.log_of(name), n, env)

    def produce(
        self,
        server: RedisServer,
        name: str,
        operation: str,
        records: Path | None = None,
        env: Mapping[str, str] | None = None,
        **options: object,
    ) -> Any:
        """Run one operation of a producer."""
        return produce(Subject.of(name, server.url()), records or self.records(), operation, env, **options)

    def jobs(self, server: RedisServer, name: str, seconds: float = 3.0) -> int:
        """As many as one worker of this peer drains in about that time; of envq found out by a trial."""
        config = Subject.of(name).peer.config
        if "n" in config:
            return max(200, int(config["n"] * self.scale * seconds / 3))
        trial = "envq:quiet" if name == "envq:quiet" else ENVQ
        if trial not in self._trials:
            rate = self.drain(server, trial, _TRIAL_JOBS).rate
            if rate > _TRIAL_JOBS:  # over within a second: too short to tell
                rate = self.drain(server, trial, 10 * _TRIAL_JOBS).rate
            self._trials[trial] = rate
        return int(min(_MOST, max(_FEWEST, self._trials[trial] * seconds * self.scale)))

    def drain(  # noqa: PLR0913 - whatever may differ between two drains, by keyword
        self,
        server: RedisServer,
        name: str,
        n: int,
        *,
        processes: int = 1,
        first: int | None = None,
        env: Mapping[str, str] | None = None,
        **work: object,
    ) -> Drained:
        """
        Empty the server, enqueue, start workers, watch, kill them.

        Args:
            first: of the backlog, so many jobs are watched; None: all.
            env: variables for producer and workers.
            work: what the producer's ``bulk`` takes: ``fn``, ``seconds``, ``payload``.
        """
        server.empty()
        records = self.records()
        self.produce(server, name, "bulk", records, env, n=n, **work)
        server.connection("CONFIG", "RESETSTAT")
        marks = (first or n) * (2 if work.get("fn") == "sleeper" else 1)
        with self.workers(server, name, records, processes, **(env or {})) as workers:
            return drain(server, workers, records, marks, processes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._temporary.cleanup()


class Series:
    """Figures of several rounds by name."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}

    def add(self, name: str, value: float | None) -> None:
        """One more; None is left out."""
        if value is not None:
            self._values.setdefault(name, []).append(value)

    def median(self, name: str) -> float | None:
        """None where there is no figure."""
        return statistics.median(self._values[name]) if self._values.get(name) else None

    def ratio(self, name: str, other: str) -> float | None:
        """Of the medians."""
        one, two = self.median(name), self.median(other)
        return one / two if one is not None and two else None

    def ratios(self, name: str) -> dict[str, float]:
        """Of this name's median to each other's."""
        found = {other: self.ratio(name, other) for other in self._values if other != name}
        return {other: ratio for other, ratio in found.items() if ratio is not None}

    def best(self, names: Iterable[str], *, lowest: bool = False) -> float | None:
        """The best median among them."""
        medians = [median for name in names if (median := self.median(name)) is not None]
        return (min if lowest else max)(medians, default=None)

    def as_figures(self) -> dict[str, list[float]]:
        """All rounds."""
        return self._values


def quotient(one: float | None, two: float | None) -> float | None:
    """None where one of them is missing."""
    return one / two if one is not None and two else None


def percentile(values: list[float], share: float) -> float:
    """The value below which that share of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
