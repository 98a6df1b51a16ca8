"""Time limits and stop requests: first the executor is asked, then it is killed."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from envq.workers.slot import Interrupt, Phase, SlotView
from envq.workers.supervision.executor_process import ExecutorProcess
from envq.workers.supervision.verdict import Intent

CANCEL_WITHIN_S: Final = 2.0  # a build of something that is no longer declared
KEPT_S: Final = 2.0  # a stop for a job that has not begun; longer than any batch is left to wait

log = logging.getLogger("envq.worker")


@dataclass
class Order:
    """A request to one executor to break off what it does."""

    kind: Interrupt
    target: str
    patience_s: float
    inside: bool = False  # the job was seen to run although a build inside it hides it in the slot
    kill_at: float | None = None  # by the monotonic clock; None until it was asked
    kept_until: float = -math.inf  # by the same clock: its job may be about to begin

    def concerns(self, view: SlotView) -> bool:
        """The executor is, or is about to be, at what the order is about."""
        if self.kind in (Interrupt.CANCEL_BUILD, Interrupt.CANCEL_OUTDATED_BUILD):
            return view.phase is Phase.BUILDING and view.subject == self.target
        if view.phase in (Phase.RUNNING, Phase.PREPARING):
            return view.subject == self.target
        return self.inside and view.phase in (Phase.BUILDING, Phase.RESETTING)

    def intent(self) -> Intent:
        """Why it is killed if it does not obey."""
        if self.kind is Interrupt.STOP_JOB:
            return Intent("stopped", f"job {self.target} was stopped on request, by force", self.target)
        return Intent("removed", f"{self.target} is not declared any more, and its build went on")


class Enforcement:
    """The orders in force, and everybody's deadlines."""

    def __init__(self, kill_grace_s: float) -> None:
        self._grace_s = kill_grace_s
        self._orders: dict[str, list[Order]] = {}

    def stop_job(self, executor: ExecutorProcess, job_id: str, *, inside: bool = False) -> None:
        """Stop a job an executor runs, or begins within ``KEPT_S``."""
        self._give(executor, Order(Interrupt.STOP_JOB, job_id, self._grace_s, inside))

    def cancel_build(self, executor: ExecutorProcess, variable: str) -> None:
        """End the build of a variable that is not declared any more."""
        self._give(executor, Order(Interrupt.CANCEL_BUILD, variable, CANCEL_WITHIN_S))

    def cancel_outdated_build(self, executor: ExecutorProcess, variable: str) -> None:
        """Ask it to go on to the declaration that stands now; not by force, for it may build inside a job."""
        self._give(executor, Order(Interrupt.CANCEL_OUTDATED_BUILD, variable, math.inf))

    def enforce(self, executors: Iterable[ExecutorProcess]) -> None:
        """Pass on orders that were not passed on, and kill who is overdue."""
        now, kept = time.monotonic(), dict[str, list[Order]]()
        for executor in executors:
            if executor.condemned:
                continue
            view = executor.view
            intent = overdue(view, now, self._grace_s)
            orders = [
                order for order in self._orders.get(executor.name, []) if _stands(order, executor.name, view, now)
            ]
            for order in orders:
                if order.concerns(view):
                    intent = intent or _press(executor, order, view, now)
            if intent is not None:
                log.warning("killing executor %s (pid %d): %s", executor.name, executor.pid, intent.detail)
                executor.kill(intent)
            elif orders:
                kept[executor.name] = orders
        self._orders = kept

    def next_due(self, executors: Iterable[ExecutorProcess]) -> float | None:
        """When somebody must be killed if nothing changes, by the monotonic clock."""
        kills = [order.kill_at for orders in self._orders.values() for order in orders if order.kill_at]
        running = [executor for executor in executors if not executor.condemned]
        ends = [end + self._grace_s for executor in running if (end := executor.view.deadline)]
        return min([*kills, *ends], default=None)

    @property
    def waiting(self) -> bool:
        """An order waits for its job to begin."""
        return any(order.kill_at is None for orders in self._orders.values() for order in orders)

    def _give(self, executor: ExecutorProcess, order: Order) -> None:
        if not order.concerns(executor.view):
            if order.kind is not Interrupt.STOP_JOB:
                return
            # Redis knows of a claim before the executor does, and claimed jobs wait for those before them.
            order.kept_until = time.monotonic() + KEPT_S
        orders = self._orders.setdefault(executor.name, [])
        if (order.kind, order.target) not in {(known.kind, known.target) for known in orders}:
            orders.append(order)


def _stands(order: Order, executor: str, view: SlotView, now: float) -> bool:
    if order.concerns(view) or (order.kill_at is None and now < order.kept_until):
        return True
    if order.kill_at is None and order.kind is Interrupt.STOP_JOB:
        log.warning("executor %s is not working on job %s: ignored", executor, order.target)
    return False


def overdue(view: SlotView, now: float, grace_s: float) -> Intent | None:
    """Why an executor that did not yield to its own timer must be killed; None if it need not."""
    if not view.deadline or now < view.deadline + grace_s:
        return None
    limit = f"within {grace_s:g} s of its limit of {view.deadline - view.since:.3g} s"
    match view.phase:
        case Phase.RUNNING | Phase.STORING:
            what = f"job {view.subject}" if view.subject else "a callback"
            return Intent("timeout", f"{what} did not end {limit}", view.subject)
        case Phase.BUILDING | Phase.RESETTING:
            what = "build" if view.phase is Phase.BUILDING else "reset"
            return Intent("build", f"the {what} of {view.subject} did not end {limit}")
        case _:
            return Intent("command", f"it did not go on {limit}")


def _press(executor: ExecutorProcess, order: Order, view: SlotView, now: float) -> Intent | None:
    if order.kill_at is None and view.phase is not Phase.PREPARING:
        order.kill_at = now + order.patience_s
        executor.interrupt(order.kind, order.target)
    if order.kill_at is not None and now >= order.kill_at:
        return order.intent()
    return None
