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
from typing import Any, cast

import redis

from envq.store import keys as rq
from envq.store.connection import REDIS_ERRORS, is_about_the_data
from envq.store.exchange import BATCH_BYTES, Claimed, ClaimReply, Ended, Exchange, Success, read_claim
from envq.workers.execution.claims import Claims, Readable
from envq.workers.execution.pace import SHORT_S
from envq.workers.execution.wire import Wire
from envq.workers.ledger import Ledger
from envq.workers.outage import Outage

log = logging.getLogger("envq.worker")


@dataclass(slots=True)
class _Unstored:
    """An end, and how to store it through RQ's own code."""

    job_id: str
    packed: bytes
    store_slowly: Callable[[], object]
    trip: int  # of the claim under which it ran
    perhaps: bool = False  # it was sent, and the reply was lost


@dataclass(slots=True)
class _Trip:
    """A round trip that is under way, and what it stores."""

    number: int
    ends: list[_Unstored]
    early: bool  # jobs run meanwhile


class Batch:
    """
    The claims of one executor, as it knows them.

    Attributes:
        outage: what was said of one; whoever has a reply again says that it is over
    """

    def __init__(self, wire: Wire, exchange: Exchange, ledger: Ledger, claims: Claims, trust_s: float) -> None:
        """``trust_s``: after so long, asleep or stopped, others may have taken us for dead."""
        self._wire = wire
        self._exchange = exchange
        self._ledger = ledger
        self._claims = claims
        self._trust_s = trust_s
        self.outage = Outage()
        self._number = 0
        self._asked_at = 0.0  # by the wall clock, which goes on while the machine sleeps
        self._trip: _Trip | None = None  # its reply is not read yet
        self._ahead: ClaimReply | None = None  # a reply that was read before ``take`` asked for it
        self._fresh: list[str] | None = None  # the queues it was asked of, if no job has run since
        self._waiting: deque[Claimed] = deque()
        self._unstored: list[_Unstored] = []
        self._slowly = False  # the last trip left something to RQ's code, which may have enqueued dependents since
        self._carried = False  # the last trip stored ends
        self._oldest = 0.0  # by the monotonic clock: when the first end was noted that is not sent

    # -- jobs --------------------------------------------------------------------------------------------

    def next(self) -> Claimed | None:
        """The job whose turn it is; None where none waits."""
        return self._waiting.popleft() if self._waiting else None

    @property
    def waiting(self) -> int:
        """Jobs that are claimed and have not begun."""
        return len(self._waiting)

    @property
    def goes_on(self) -> bool:
        """More jobs wait, or have been asked for."""
        return bool(self._waiting) or self._trip is not None or self._ahead is not None

    @property
    def seized(self) -> bool:
        """What waits may have been given to others: ask before the next begins. Read after the slot names that job."""
        return self._ledger.seized or time.time() - self._asked_at > self._trust_s

    def take(self, queue_names: Sequence[str], wanted: int) -> ClaimReply:
        """Store what has ended and claim what comes next; raises what redis-py raises, and nothing is lost by it."""
        reply, self._ahead = self._ahead, None
        # What it says was so before the last jobs ran, or of other queues.
        late = self._trip is not None or (reply is not None and self._fresh != [*queue_names])
        self._fresh = None
        if reply is None:
            if self._trip is None:
                self._send(queue_names, wanted)
            reply = self._receive()
        while not reply.jobs and (late or self._slowly):
            late = False
            self._send(queue_names, wanted)
            reply = self._receive()
        self._waiting.extend(reply.jobs)
        return reply

    def ask(self, queue_names: Sequence[str], wanted: int) -> None:
        """Begin to store and to claim; the server works while the jobs that wait are run. ``take`` reads the reply."""
        if self._ledger.seized:  # what waits was given back, perhaps; the next trip would hide that
            return
        number = self._number + 1
        if self._trip is None and self._ahead is None and self._ledger.turn(number, len(self._waiting) + wanted):
            self._send(queue_names, wanted, early=True)

    def wait(self, queue_name: str, wanted: int, wake: Sequence[Readable], timeout_s: float) -> None:
        """
        Block until the queue has a job, one of ``wake`` is readable, or the time is over; ``take`` brings the jobs.

        The claim is sent behind the move that blocks: no round trip lies between a job's arrival and its claim.
        """
        move = ("BLMOVE", rq.queue(queue_name), self._exchange.claims_key, "LEFT", "RIGHT", timeout_s)
        self._send([queue_name], wanted, behind=move)
        try:
            self._wire.wait(wake, timeout_s)
        except redis.ResponseError:  # an ACL without CLIENT UNBLOCK: a closed connection ends the move as well
            self.forget_waiting()
            return
        self._ahead, self._fresh = self._receive(), [queue_name]

    def forget_waiting(self) -> None:
        """After an error: the next claim brings what is still ours, as far as it wants it, and puts back the rest."""
        self._waiting.clear()
        self._ahead = None
        if self._trip is not None:  # its reply would be taken for that to the next one
            self._wire.close()
            self._lost(self._trip, ConnectionError("the connection was dropped"))

    def still_ours(self, claimed: Claimed) -> bool:
        """Ask, storing what has ended; drops what was given back. Whether this job may begin."""
        if self._trip is not None:
            self._ahead = self._receive()  # what it claimed may have been given back as well
        self._send((), 0, claimed)
        return claimed.job_id not in self._receive().gone

    def hand_back(self) -> None:
        """Store what has ended, put back what waits; none of it has begun."""
        self.store()
        self._claims.hand_back()
        self.forget_waiting()

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
        self._unstored.append(_Unstored(success.job_id, packed, store_slowly, self._ledger.trip))
        return True

    @property
    def due(self) -> bool:
        """What has ended should be stored now, whatever waits."""
        return bool(self._unstored) and (self._ledger.used > BATCH_BYTES or time.monotonic() - self._oldest > SHORT_S)

    def store(self) -> None:
        """Store what has ended, claiming nothing; raises what redis-py raises, and nothing is lost by it."""
        if self._trip is not None:
            self._ahead = self._receive()  # its jobs wait for ``take``: there may be something to catch up with first
        if self._unstored:
            self._send((), 0)
            self._receive()

    def try_store(self) -> None:
        """The same; where Redis does not answer, the loop goes on with it."""
        try:
            self.store()
        except REDIS_ERRORS as error:
            self.forget_waiting()
            self.outage.tell("Redis does not answer (%s); results are kept until it does", error)

    @property
    def carried(self) -> bool:
        """The last trip stored ends; it took no job whose id was among them, though that may wait to run again."""
        return self._carried

    @property
    def unstored(self) -> int:
        """Ends that are not stored, as far as we know."""
        return len(self._unstored) + len(self._trip.ends if self._trip else ())

    # -- the round trip ------------------------------------------------------------------------------------

    def _send(
        self,
        queue_names: Sequence[str],
        wanted: int,
        *beginning: Claimed,
        early: bool = False,
        behind: tuple[Any, ...] | None = None,
    ) -> None:
        now = self._asked_at = time.time()
        self._number += 1
        ahead = self._ahead.jobs if self._ahead else ()
        held = [each.job_id for each in (*beginning, *self._waiting, *ahead)]
        ends, self._unstored = self._unstored, []
        trip = self._trip = _Trip(self._number, ends, early)
        ended = [each.job_id for each in ends]
        claim = self._exchange.claim(queue_names, wanted, trip=trip.number, held=held, ended=ended)
        try:
            if ends:
                self._wire.send(self._exchange.finish([each.packed for each in ends], now), claim)
            else:
                self._wire.send(claim, behind=behind)
        except BaseException as error:
            self._lost(trip, error)
            raise

    def _receive(self) -> ClaimReply:
        """The reply to the trip under way."""
        trip = cast(_Trip, self._trip)
        try:
            *outcomes, reply = self._wire.receive()
        except BaseException as error:
            self._lost(trip, error)
            raise
        self._trip, self._carried = None, bool(trip.ends)
        claimed = None if isinstance(reply, redis.ResponseError) else read_claim(reply)
        self._settle(trip, outcomes[0] if trip.ends else [], len(claimed.jobs) if claimed else 0)
        if claimed is None:
            raise reply
        if claimed.gone:
            self._waiting = deque(each for each in self._waiting if each.job_id not in claimed.gone)
            if self._ahead is not None:
                self._ahead.jobs = [each for each in self._ahead.jobs if each.job_id not in claimed.gone]
        return claimed

    def _lost(self, trip: _Trip, error: BaseException) -> None:
        """Whether it was stored is not known: it is sent again, and what is stored already is then found gone."""
        self._trip = None
        for each in trip.ends:
            each.perhaps = True
        self._unstored = trip.ends + self._unstored
        if trip.ends:
            others = f" (and {len(trip.ends) - 1} others)" if len(trip.ends) > 1 else ""
            self.outage.tell("job %s%s is not stored yet, trying again: %s", trip.ends[0].job_id, others, error)

    def _settle(self, trip: _Trip, outcomes: Any, claimed: int) -> None:
        if isinstance(outcomes, redis.ResponseError):
            if not is_about_the_data(outcomes):
                self._lost(trip, outcomes)
                raise outcomes
            log.error("results cannot be stored together (%s); each is stored by itself", outcomes)
            outcomes = [Ended.HAS_DEPENDENTS] * len(trip.ends)
        left: list[_Unstored] = []
        for each, outcome in zip(trip.ends, outcomes, strict=True):
            if outcome == Ended.HAS_DEPENDENTS:
                left.append(each)
            elif outcome == Ended.DELETED:
                log.warning("job %s was deleted while it ran; its result is dropped", each.job_id)
            elif outcome == Ended.GONE and not each.perhaps and each.trip > self._ledger.seized_trip:
                log.warning("job %s was given to another executor; this result is dropped", each.job_id)
        held = claimed + len(self._waiting) + len(self._ahead.jobs if self._ahead else ())
        self._ledger.begin(trip.number, held, [each.packed for each in left], since_turn=trip.early)
        self._unstored, self._slowly = left + self._unstored, bool(left)
        for each in left:  # an error leaves the others to the next trip
            each.store_slowly()
            self._unstored.remove(each)
            self._ledger.begin(trip.number, held, [each.packed for each in self._unstored])
