"""The driver of a storm: enqueues the orders in every way there is, again where it does not know what happened."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import redis
import rq
from chaos.storm import work
from chaos.storm.declaring import Declaring
from chaos.storm.patience import AWAY, until_done
from chaos.storm.plan import Order

import envq

KEPT_S: Final = 36_000
TEXT: Final = "x" * work.LARGE


@dataclass
class Enqueued:
    """One order that a server has acknowledged."""

    order: Order
    job_id: str
    effect: str  # under which its code notes what it does
    kind: str  # of what its code does
    text: str = ""
    labels: dict[str, int] = field(default_factory=dict[str, int])  # of the variables before it was enqueued

    @property
    def expected(self) -> Any:
        return work.expected(self.kind, self.order.number, self.text)


class Driver:
    """Enqueues, and keeps what was acknowledged."""

    def __init__(self, client: Any, stock: redis.Redis, declaring: Declaring) -> None:
        self.done: dict[int, Enqueued] = {}
        self.repeated = 0  # bulks whose reply was lost: perhaps both copies run
        self._client, self._stock_client = client, stock
        self._declaring = declaring
        self._plain = envq.task(work.act)
        self._shipped = envq.task(work.by_value())
        self._awaited = envq.task(work.act_slowly)

    def enqueue(self, orders: Sequence[Order]) -> None:
        """All of them, in their order."""
        for (bulk, kind, _), group in groupby(orders, key=lambda order: (order.bulk, order.kind, order.queue)):
            if kind == "group":
                self._enqueue_group(list(group))
            elif bulk:
                self._enqueue_bulk(kind, list(group))
            else:
                for order in group:
                    self._enqueue_one(order)

    def _enqueue_bulk(self, kind: str, orders: list[Order]) -> None:
        """In one go; ids are made on the way, so a repetition is another job, with other effects."""
        labels = dict(self._declaring.latest)
        task = random.Random(orders[0].number).choice([self._plain, self._shipped])
        for attempt in range(1000):
            calls = [(kind, f"{order.number}.{attempt}", order.number) for order in orders]
            try:
                jobs = task.options(queue=orders[0].queue, result_ttl=KEPT_S).starmap(calls)
            except AWAY:
                self.repeated += 1
                until_done(self._client.connection.ping)
                continue
            for order, job, (_, effect, _) in zip(orders, jobs, calls, strict=True):
                self.done[order.number] = Enqueued(order, job.id, effect, kind, labels=labels)
            return

    def _enqueue_group(self, orders: list[Order]) -> None:
        """RQ's group: one transaction for all of it."""
        queue = envq.Queue(orders[0].queue)
        made = [Enqueued(order, f"storm-{order.number}", str(order.number), "noop") for order in orders]
        datas = [
            queue.prepare_data(
                work.act, ("noop", each.effect, each.order.number), job_id=each.job_id, result_ttl=KEPT_S, kwargs={}
            )
            for each in made
        ]
        group = envq.Group(self._client.connection, f"storm-{orders[0].number}")
        self._with_id(made[0].job_id, lambda: group.enqueue_many(queue, datas))
        self.done |= {each.order.number: each for each in made}

    def _enqueue_one(self, order: Order) -> None:
        kind = _DEEDS.get(order.kind, order.kind)
        text = TEXT if kind == "large" else ""
        job_id = f"storm-{order.number}"
        made = Enqueued(order, job_id, str(order.number), kind, text, dict(self._declaring.latest))
        enqueue = getattr(self, "_" + order.kind.replace("-", "_"), self._ordinary)
        call = (kind, made.effect, order.number, text)
        self._with_id(job_id, lambda: enqueue(order, call))
        self.done[order.number] = made

    def _with_id(self, job_id: str, enqueue: Callable[[], object]) -> None:
        """A transaction writes the record and pushes the id: where the record is there, nothing is to be repeated."""
        exists: Callable[[], int] = lambda: self._client.connection.exists(f"rq:job:{job_id}")  # noqa: E731
        while True:
            try:
                enqueue()
                return
            except AWAY:
                if until_done(exists):
                    return

    def _options(self, order: Order, **options: Any) -> dict[str, Any]:
        return {"job_id": f"storm-{order.number}", "queue": order.queue, "result_ttl": KEPT_S} | options

    def _ordinary(self, order: Order, call: tuple[Any, ...]) -> None:
        task = self._shipped if order.number % 3 == 0 else self._plain
        task.options(**self._options(order)).enqueue(*call)

    def _once(self, order: Order, call: tuple[Any, ...]) -> None:
        self._plain.options(**self._options(order, on_crash="fail")).enqueue(*call)

    _fail_once = _once

    def _overdue(self, order: Order, call: tuple[Any, ...]) -> None:
        self._plain.options(**self._options(order, timeout=work.OVERDUE_S)).enqueue(*call)

    def _retry(self, order: Order, call: tuple[Any, ...]) -> None:
        interval = order.number % 2
        retry = envq.Retry(max=work.RETRIES, interval=interval)
        self._plain.options(**self._options(order, retry=retry)).enqueue(*call)

    def _told(self, order: Order, call: tuple[Any, ...]) -> None:
        callbacks = {"on_success": envq.Callback(work.on_success), "on_failure": envq.Callback(work.on_failure)}
        self._plain.options(**self._options(order, **callbacks)).enqueue(*call)

    _fail_told = _told

    def _coroutine(self, order: Order, call: tuple[Any, ...]) -> None:
        self._awaited.options(**self._options(order)).enqueue(*call)

    def _later(self, order: Order, call: tuple[Any, ...]) -> None:
        self._plain.options(**self._options(order)).enqueue_in(order.number % 3, *call)

    def _child(self, order: Order, call: tuple[Any, ...]) -> None:
        self._plain.options(**self._options(order, depends_on=f"storm-{order.parent}")).enqueue(*call)

    def _tolerant_child(self, order: Order, call: tuple[Any, ...]) -> None:
        parent = envq.Dependency(f"storm-{order.parent}", allow_failure=True)
        self._plain.options(**self._options(order, depends_on=parent)).enqueue(*call)

    def _stock(self, order: Order, call: tuple[Any, ...]) -> None:
        """As a program that knows nothing of envq."""
        queue = rq.Queue(order.queue, connection=self._stock_client)
        queue.enqueue("chaos.storm.work.act", *call, job_id=f"storm-{order.number}", result_ttl=KEPT_S)

    _stock_read = _stock


# What the code of a job does, where that is not the name of its kind.
_DEEDS: Final = {
    "told": "noop",
    "coroutine": "noop",
    "later": "noop",
    "parent": "nap",
    "failing-parent": "fail",
    "child": "noop",
    "tolerant-child": "noop",
    "stock": "noop",
    "stock-read": "read",
}
