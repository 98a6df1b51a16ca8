"""The schedule of a storm: which jobs and which weather in which round. The same seed makes the same plan."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

QUEUES: Final = ("high", "default", "low")
JOBS_A_ROUND: Final = 50

# Kind and weight: "noop", "read" and so on go in bulk, the others one by one.
KINDS: Final = {
    "noop": 24, "read": 12, "custom": 8, "shaky": 2, "nap": 22, "long": 2, "overdue": 0.5, "large": 1, "fail": 4,
    "once": 8, "fail-once": 1, "retry": 4, "again": 2, "told": 4, "fail-told": 2, "coroutine": 4, "later": 2,
    "parent": 3, "failing-parent": 1.5, "stock": 5, "stock-read": 2, "group": 0.5,
}  # fmt: skip

# What happens beside the jobs, and its weight.
WEATHER: Final = {
    "kill an executor": 11, "kill a scheduler": 1, "kill a supervisor": 2, "lose a worker": 2,
    "lose all at a reply": 1, "hang the server": 0.5, "pause a process": 3, "pause and kill": 3,
    "cut a script": 7, "lose a reply": 6, "lose an enqueue": 4, "cut all": 1, "kill a client": 2,
    "kill all clients": 0.6, "flush scripts": 1, "roll": 1.5, "declare steady": 3, "declare custom": 2,
    "declare shaky": 2, "declare chained": 1, "remove shaky": 1, "calm": 2,
}  # fmt: skip
RESTARTS: Final = ("kill the server", "shut the server down", "kill the server")


@dataclass(frozen=True)
class Order:
    """One job that is wanted."""

    number: int
    kind: str
    queue: str
    bulk: bool = False
    parent: int | None = None  # the order it depends on


@dataclass(frozen=True)
class Round:
    """Jobs to enqueue, and what happens meanwhile, after so many seconds."""

    orders: tuple[Order, ...]
    weather: str
    after_s: float
    seed: int = 0


@dataclass(frozen=True)
class Plan:
    """A storm."""

    seed: int
    rounds: tuple[Round, ...]
    orders: tuple[Order, ...] = field(repr=False)


def make_plan(seed: int, jobs: int, *, restarts: int = 3, ghosts: int = 4, jobs_a_round: int = JOBS_A_ROUND) -> Plan:
    """A plan of about so many jobs: a parent brings its child along."""
    chance = random.Random(seed)
    count = max(restarts + ghosts + 2, round(jobs / jobs_a_round))
    fixed = dict(zip(_spread(count, restarts), RESTARTS * restarts, strict=False))
    for place in _spread(count - 1, ghosts):
        fixed.setdefault(place if place not in fixed else place + 1, "freeze a worker")
    orders: list[Order] = []
    rounds: list[Round] = []
    for at in range(count):
        new = _orders(chance, len(orders), jobs * (at + 1) // count - len(orders))
        orders += new
        weather = fixed.get(at) or chance.choices([*WEATHER], [*WEATHER.values()])[0]
        rounds.append(Round(tuple(new), weather, chance.uniform(0.05, 0.8), chance.randrange(10**6)))
    return Plan(seed, tuple(rounds), tuple(orders))


def _spread(count: int, things: int) -> list[int]:
    return [round(count * (at + 0.5) / things) for at in range(things)]


def _orders(chance: random.Random, first: int, wanted: int) -> list[Order]:
    orders: list[Order] = []
    kinds, weights = [*KINDS], [*KINDS.values()]
    while len(orders) < wanted:
        kind = chance.choices(kinds, weights)[0]
        queue = chance.choice(QUEUES)
        bulk = kind == "group" or (kind in ("noop", "read", "custom", "nap") and chance.random() < 0.12)
        for _ in range(chance.randint(5, 40) if bulk else 1):
            orders.append(Order(first + len(orders), kind, queue, bulk))
        if kind in ("parent", "failing-parent"):
            child = "child" if kind == "parent" else "tolerant-child"
            orders.append(Order(first + len(orders), child, chance.choice(QUEUES), parent=first + len(orders) - 1))
    return orders
