"""What an executor holds: jobs that wait for their turn, and ends that are not stored yet.

One round trip stores the ends and claims what comes next. An end is noted in shared memory before anything
else happens, so that the supervisor can store it where the executor is busy or dead.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from envq.store.connection import REDIS_ERRORS, is_about_the_data
from envq.store.exchange import BATCH_BYTES, Claimed, ClaimReply, Ended, Exchange, Success, read_claim
from envq.workers.execution.claims import Claims
from envq.workers.execution.pace import SHORT_S
from envq.workers.execution.wire import Wire
from envq.workers.ledger import Ledger

log = logging.getLogger("envq.worker")


@dataclass(slots=True)
class _Unstored:
    """An end, and how to store it through RQ's own code."""

    job_id: str
    packed: bytes
    store_slowly: Callable[[], object]
    perhaps: bool = False  # it was sent, and the reply was lost


class Batch:
    """The claims of one executor, as it knows them."""

    def __init__(self, wire: Wire, exchange: Exchange, ledger: Ledger, claims: Claims) -> None:
        self._wire = wire
        self._exchange = exchange
        self._ledger = ledger
        self._claims = claims
        self._trip = 0
        self._waiting: deque[Claimed] = deque()
        self._unstored: list[_Unstored] = []
        self._oldest = 0.0  # by the monotonic clock: when the first end was noted that is not stored

    # -- jobs --------------------------------------------------------------------------------------------

    def next(self) -> Claimed | None:
        """The job whose turn it is; None where none waits."""
        return self._waiting.popleft() if self._waiting else None

    @property
    def waiting(self) -> int:
        """Jobs that are claimed and have not begun."""
        return len(self._waiting)

    @property
    def seized(self) -> bool:
        """The supervisor gives back what waits: ask before the next job begins. Read after the slot names that job."""
        return self._ledger.seized

    def take(self, queue_names: Sequence[str], wanted: int) -> ClaimReply:
        """Store what has ended and claim what comes next; raises what redis-py raises, and nothing is lost by it."""
        reply = self._trade(queue_names, wanted)
        self._waiting.extend(reply.jobs)
        return reply

    def forget_waiting(self) -> None:
        """After an error: the next claim brings what is still ours, as far as it wants it, and puts back the rest."""
        self._waiting.clear()

    def still_ours(self, claimed: Claimed) -> bool:
        """Ask, storing what has ended; drops what was given back. Whether this job may begin."""
        reply = self._trade((), 0, claimed)
        return claimed.job_id not in reply.gone

    def hand_back(self) -> None:
        """Store what has ended, put back what waits; none of it has begun."""
        self.store()
        self._claims.hand_back()
        self._waiting.clear()

    # -- ends --------------------------------------------------------------------------------------------

    def end(self, success: Success, store_slowly: Callable[[], object]) -> bool:
        """
        Note the end of a job; the next round trip stores it, or, where it gained dependents, ``store_slowly``.

        False where there is no room for it: it is to be stored at once, or the job would run again if we died now.
        """
        packed = success.packed()
        if not self._ledger.note(packed):
            return False
        if not self._unstored:
            self._oldest = time.monotonic()
        self._unstored.append(_Unstored(success.job_id, packed, store_slowly))
        return True

    @property
    def due(self) -> bool:
        """What has ended should be stored now, whatever waits."""
        return bool(self._unstored) and (self._ledger.used > BATCH_BYTES or time.monotonic() - self._oldest > SHORT_S)

    def store(self) -> None:
        """Store what has ended, claiming nothing; raises what redis-py raises, and nothing is lost by it."""
        if self._unstored:
            self._trade((), 0)

    def try_store(self) -> None:
        """The same; where Redis does not answer, the loop goes on with it."""
        try:
            self.store()
        except REDIS_ERRORS as error:
            self.forget_waiting()
            log.warning("Redis does not answer (%s); results are kept until it does", error)

    @property
    def unstored(self) -> int:
        """Ends that are not stored."""
        return len(self._unstored)

    # -- the round trip ------------------------------------------------------------------------------------

    def _trade(self, queue_names: Sequence[str], wanted: int, *beginning: Claimed) -> ClaimReply:
        now = time.time()
        self._trip += 1
        held = [each.job_id for each in (*beginning, *self._waiting)]
        ended = [each.job_id for each in self._unstored]
        calls = [self._exchange.claim(queue_names, wanted, now, trip=self._trip, held=held, ended=ended)]
        if ended:
            calls.insert(0, self._exchange.finish([each.packed for each in self._unstored], now))
        try:
            *outcomes, reply = self._wire.call(*calls)
        except BaseException as error:
            for each in self._unstored:
                each.perhaps = True
            if ended:
                others = f" (and {len(ended) - 1} others)" if len(ended) > 1 else ""
                log.warning("job %s%s is not stored yet, trying again: %s", ended[0], others, error)
            raise
        claimed = None if isinstance(reply, redis.ResponseError) else read_claim(reply)
        self._settle(outcomes[0] if ended else [], len(held) + len(claimed.jobs if claimed else ()))
        if claimed is None:
            raise reply
        if claimed.gone:
            self._waiting = deque(each for each in self._waiting if each.job_id not in claimed.gone)
        return claimed

    def _settle(self, outcomes: Any, held: int) -> None:
        if isinstance(outcomes, redis.ResponseError):
            if not is_about_the_data(outcomes):
                raise outcomes
            log.error("results cannot be stored together (%s); each is stored by itself", outcomes)
            outcomes = [Ended.HAS_DEPENDENTS] * len(self._unstored)
        ended, self._unstored = self._unstored, []
        seized = self._ledger.seized
        for each, outcome in zip(ended, outcomes, strict=True):
            if outcome == Ended.HAS_DEPENDENTS:
                self._unstored.append(each)
            elif outcome == Ended.DELETED:
                log.warning("job %s was deleted while it ran; its result is dropped", each.job_id)
            elif outcome == Ended.GONE and not each.perhaps and not seized:
                log.warning("job %s was given to another executor; this result is dropped", each.job_id)
        while self._unstored:  # an error leaves the others to the next trip
            self._ledger.begin(self._trip, held, [each.packed for each in self._unstored])
            self._unstored[0].store_slowly()
            del self._unstored[0]
        self._ledger.begin(self._trip, held)
