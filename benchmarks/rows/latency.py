"""One job at a time on an idle worker, until its result is in the producer."""

from __future__ import annotations

from collections.abc import Iterable

from harness.bench import ENVQ, Bench, percentile, quotient
from harness.drains import wait_for_records
from harness.processes import Subject
from harness.redis_server import RedisServer
from harness.results import Outcome, at_most

_PEERS = ("huey:thread-ttl", "rq:simple", "celery:solo", "dramatiq:t8", "taskiq:stream-fast")
_SAMPLES = 100


class LatencySamples:
    """Milliseconds of all rounds by name; each round is one producer and one worker that idles."""

    def __init__(self, bench: Bench, server: RedisServer, names: Iterable[str], most: int = _SAMPLES) -> None:
        self._ms: dict[str, dict[str, list[float]]] = {}
        for name in bench.interleaved(names):
            config = Subject.of(name).peer.config
            n = min(most, config.get("lat_n", _SAMPLES))
            if found := bench.attempt(name, _one_round, bench, server, name, n):
                for until, us in found.items():
                    self._ms.setdefault(name, {}).setdefault(until, []).extend(each / 1e3 for each in us)
                bench.say(f"{name}: p50 {self.ms(name, 0.5):.2f} ms, p99 {self.ms(name, 0.99):.2f} ms")

    def ms(self, name: str, share: float, until: str = "to_result_us") -> float | None:
        """A percentile; None where nothing was measured."""
        values = self._ms.get(name, {}).get(until)
        return percentile(values, share) if values else None

    def ratios(self, name: str) -> dict[str, float]:
        """Of this name's median latency to each other's."""
        ratios = {other: quotient(self.ms(name, 0.5), self.ms(other, 0.5)) for other in self._ms if other != name}
        return {other: ratio for other, ratio in ratios.items() if ratio is not None}

    def best(self, but: str) -> float | None:
        """The lowest median of the others."""
        return min((ms for name in self._ms if name != but and (ms := self.ms(name, 0.5)) is not None), default=None)

    def as_figures(self) -> dict[str, dict[str, dict[str, float | int | None]]]:
        """Percentiles; thousands of samples would make the file unreadable."""
        return {
            name: {
                until.removesuffix("_us"): {
                    "samples": len(values),
                    "p50": percentile(values, 0.5),
                    "p90": percentile(values, 0.9),
                    "p99": percentile(values, 0.99),
                    "max": max(values),
                }
                for until, values in of_name.items()
            }
            for name, of_name in self._ms.items()
        }


def _one_round(bench: Bench, server: RedisServer, name: str, n: int) -> dict[str, list[float]]:
    server.empty()
    records = bench.records()
    bench.produce(server, name, "one", records)
    with bench.workers(server, name, records) as workers:
        wait_for_records(records, 2, workers)
        return bench.produce(server, name, "latency", records, n=n)


def measure(bench: Bench) -> Outcome:
    with RedisServer() as server:
        samples = LatencySamples(bench, server, [ENVQ, *_PEERS])
    p50 = samples.ms(ENVQ, 0.5)
    return Outcome(
        goals=[
            at_most("p50", p50, 0.8, "ms"),
            at_most("p99", samples.ms(ENVQ, 0.99), 1.5, "ms"),
            at_most("p50, ratio to the best peer's", quotient(p50, samples.best(ENVQ)), 1, "×"),
        ],
        ratios=samples.ratios(ENVQ),
        figures={"latency ms": samples.as_figures()},
    )
