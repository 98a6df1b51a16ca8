"""Jobs a second of one producer, one by one and in the peer's bulk call."""

from __future__ import annotations

from harness.bench import ENVQ, FASTEST, Bench, Series, quotient
from harness.processes import Subject
from harness.redis_server import RedisServer
from harness.results import Goal, Outcome

_RQ = "rq:simple"
_ONE_BY_ONE, _BULK = 6000, 20_000
_PEERS = tuple(name for name in FASTEST if name != "dramatiq:t1-prefetch")  # the same producer as that of t8


def measure(bench: Bench) -> Outcome:
    single, bulk = Series(), Series()
    names = [ENVQ, _RQ, "dramatiq:t8", *_PEERS]
    with RedisServer() as server:
        for name in bench.interleaved(names):
            single.add(name, bench.attempt(name, _rate, bench, server, name, "enqueue", _ONE_BY_ONE))
            if Subject.of(name).peer.bulk:
                bulk.add(name, bench.attempt(name, _rate, bench, server, name, "bulk", _BULK))
            bench.say(f"{name}: {single.median(name) or 0:,.0f}/s one by one, {bulk.median(name) or 0:,.0f}/s in bulk")
    with_record = [name for name in names if name != ENVQ and Subject.of(name).peer.keeps_record]
    return Outcome(
        goals=[
            Goal("one by one, ratio to RQ", single.ratio(ENVQ, _RQ), 2.5, "×"),
            Goal(
                "one by one, ratio to the fastest peer that keeps a job record",
                quotient(single.median(ENVQ), single.best(with_record)),
                1,
                "×",
            ),
            Goal("one by one, a second", single.median(ENVQ)),
            Goal("in bulk, a second", bulk.median(ENVQ), 50_000),
        ],
        ratios=single.ratios(ENVQ),
        figures={"one by one, a second": single.as_figures(), "in bulk, a second": bulk.as_figures()},
    )


def _rate(bench: Bench, server: RedisServer, name: str, operation: str, n: int) -> float:
    server.empty()
    return bench.produce(server, name, operation, n=int(n * bench.scale))["rate"]
