"""One executor: the process that holds variables and runs jobs. Claim → catch up → run → store → reset.

Everything here happens on the main thread: objects are created, used and destroyed where they were made.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import time
from multiprocessing.connection import Connection
from typing import Any, Final

from redis import RedisError

from envq.store.connection import REDIS_ERRORS, explain
from envq.store.exchange import BATCH, Claimed, ClaimReply
from envq.workers.config import EXIT_BUILD_FAILED, EXIT_OK, EXIT_RECYCLE, EXIT_UNFIT, ExecutorConfig
from envq.workers.execution.claims import POLL_S
from envq.workers.execution.deadline import Deadlines
from envq.workers.execution.pace import SHORT_S, Pace
from envq.workers.execution.recycling import Recycling
from envq.workers.execution.summons import Summons
from envq.workers.ledger import Ledger
from envq.workers.middleware.job_log import write_waiting
from envq.workers.parts import Parts, assemble
from envq.workers.settling import settle
from envq.workers.slot import Phase, Slot

log = logging.getLogger("envq.worker")

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
MAINTENANCE_S: Final = 600.0
SIGN_OFF_S: Final = 10.0
TELL_S: Final = 0.5
ASK_EARLY_FROM: Final = 16  # jobs: so many keep the executor busy for as long as the server needs for the next ones


def run_executor(config: ExecutorConfig, slot: Slot, ledger: Ledger, control: Connection) -> None:
    """The process's main function; leaves through sys.exit with a code of workers/config.py."""
    sys.exit(Executor(config, slot, ledger, control).run())


class Executor:
    """The loop, and what makes it end."""

    def __init__(self, config: ExecutorConfig, slot: Slot, ledger: Ledger, control: Connection) -> None:
        self.config = config
        self._slot = slot
        self._ledger = ledger
        self._deadlines = Deadlines(slot)
        self._summons = Summons(control, self._deadlines, self._become_copy)
        self._parts: Parts = assemble(config, slot, ledger, self._deadlines)
        self._recycling = Recycling(config.worker, self._parts.memory, self._ask_for_successor)
        self._idle_since = time.monotonic()
        self._maintained_at = -math.inf
        self._pause_s = FIRST_PAUSE_S  # after an error of Redis; longer after each in a row
        self._jobs = 0
        self._pace = Pace(most=1 if config.worker.through_rq or config.worker.isolate else BATCH)
        self._told_at = -math.inf

    def run(self) -> int:
        """Work until told to stop; the exit code."""
        parts = self._parts
        if not self._until_connected(parts.birth):
            return EXIT_OK
        parts.batch.outage.over()
        try:
            code = self._unfit()
            if code is None:
                self._summons.say(b"born")
            while code is None:
                code = self._turn()
        except BaseException:
            # Not as if nothing had happened: by the slot the supervisor judges what ran, and settles the claims.
            broken_in = self._slot.now
            parts.let_go()
            self._slot.write(*broken_in)
            parts.forget_connections()
            raise
        parts.let_go()
        self._slot.write(Phase.STOPPING, deadline=time.monotonic() + SIGN_OFF_S)
        parts.sign_off()
        self._deadlines.disarm()
        return code

    # -- one turn of the loop ---------------------------------------------------------------------------

    def _turn(self) -> int | None:
        """Claim and run, or wait; an exit code ends the loop."""
        if self._summons.heed():
            return EXIT_OK
        if self._summons.renew:
            self._summons.renew = False
            if self._recycling.be_replaced("its supervisor asks for it"):
                return EXIT_RECYCLE
        try:
            # Asked again: an error may have come between the last job and the end.
            code = self._exit_after_job() if self._jobs else None
            code = self._take_and_run() if code is None else code
            if self._pause_s > FIRST_PAUSE_S:
                self._pause_s = FIRST_PAUSE_S
                self._parts.batch.outage.over()
            return code
        except REDIS_ERRORS as error:
            self._parts.batch.forget_waiting()
            self._parts.forget_connections()
            self._slot.leave_job()
            self._tell_of_outage(error)
            self._until_connected(lambda: self._parts.connection.ping())
            # It may answer and still refuse (no memory left, no right to write): do not ask in a tight loop.
            self._summons.pause(self._pause_s)
            self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
            return None

    def _take_and_run(self) -> int | None:
        if self._summons.register:
            self._parts.register_again()
            self._summons.register = False
        self._parts.runtime.retry_due()
        self._maintain()
        reply = self._claim()
        if reply is None:
            return None
        return self._work_off() if reply.jobs else self._idle(reply)

    def _claim(self) -> ClaimReply | None:
        """
        Store what has ended and take jobs, on a clean executor that has seen every declaration made before them (C12).

        None: jobs were there and went back, because more has changed meanwhile; look again at once.
        """
        parts = self._parts
        reply = self._take()
        if parts.catch_up.is_current(reply.generation):
            return reply
        snapshot, recipes, would_build = parts.catch_up.pending()
        if reply.jobs and would_build:
            parts.batch.hand_back()  # another executor may be ready before we are
            reply.jobs.clear()
        parts.adopt(snapshot, recipes)
        if reply.jobs and not self._are_open(reply.jobs):
            parts.batch.hand_back()
            return None
        if not reply.jobs and would_build:
            return self._claim_again()
        return reply

    def _claim_again(self) -> ClaimReply | None:
        reply = self._take()
        if reply.jobs and not self._parts.catch_up.is_current(reply.generation):
            self._parts.batch.hand_back()
            return None
        return reply

    def _take(self) -> ClaimReply:
        return self._parts.batch.take(self._open_queues(), self._wants())

    def _open_queues(self) -> list[str]:
        """RQ's names of the queues that no required variable holds up."""
        return self._parts.rq_names(self._parts.catch_up.open_queues(self.config.worker.queues))

    def _wants(self) -> int:
        """How many jobs to claim, besides those that wait."""
        of_the_worker = None if self.config.max_jobs is None else self.config.max_jobs - self._jobs
        limits = (of_the_worker, self._recycling.jobs_left(self._jobs))
        left = (max(0, limit - self._parts.batch.waiting) for limit in limits if limit is not None)
        return min([self._pace.wanted, *left])

    def _are_open(self, jobs: list[Claimed]) -> bool:
        """Whether all of them may still be taken: a variable that became required holds its queues up."""
        still_open = self._open_queues()
        queues = {job.fields.get(b"origin", b"").decode(errors="replace") for job in jobs if not job.settle}
        return queues <= set(still_open)

    def _work_off(self) -> int | None:
        """All jobs that were claimed together, one after the other."""
        batch = self._parts.batch
        if batch.waiting > 1:
            self._tell_of_batch()
        if batch.waiting >= ASK_EARLY_FROM and self._wants() >= ASK_EARLY_FROM:
            batch.ask(self._open_queues(), self._wants())
        before, began = self._jobs, time.monotonic()
        heard = began
        code = None
        while code is None and (claimed := batch.next()) is not None:
            code = self._run(claimed)
            if batch.due:
                batch.store()
            if batch.waiting and (now := time.monotonic()) > heard + SHORT_S:
                heard = now
                self._summons.heed()
            if self._summons.stopping and batch.waiting:
                batch.hand_back()
        self._slot.write(Phase.IDLE)
        write_waiting()
        self._pace.took(self._jobs - before, time.monotonic() - began)
        self._idle_since = time.monotonic()
        return code

    def _tell_of_batch(self) -> None:
        """Now and then: while it knows of batches, the supervisor looks whether a long job holds one up."""
        now = time.monotonic()
        if now >= self._told_at + TELL_S:
            self._told_at = now
            with contextlib.suppress(OSError):  # it is gone, and so are we soon
                self._summons.say(b"batch")

    def _run(self, claimed: Claimed) -> int | None:
        """One job from its claim to its reset."""
        parts = self._parts
        self._slot.write(Phase.PREPARING, claimed.job_id, claimed.execution_id)
        while parts.batch.seized:
            if not parts.batch.still_ours(claimed):
                self._slot.leave_job()
                return None
            # Asking stores what has ended, which may take long: what waits may be seized again meanwhile.
            self._slot.write(Phase.PREPARING, claimed.job_id, claimed.execution_id)
        if claimed.settle:
            settle(parts, claimed, claimed.settle)
            self._slot.end_job()
        else:
            self._run_job(claimed)
        self._jobs += 1
        return self._exit_after_job()

    def _run_job(self, claimed: Claimed) -> None:
        parts = self._parts
        context = parts.context(claimed)
        if context is None:
            self._slot.end_job()
            return
        parts.identify(context)
        try:
            parts.run(context)
        finally:
            parts.end_of_job()

    # -- waiting and ending -------------------------------------------------------------------------------

    def _idle(self, reply: ClaimReply) -> int | None:
        parts, worker = self._parts, self.config.worker
        if worker.build_failure == "exit" and parts.catch_up.failed_for_good():
            return EXIT_BUILD_FAILED
        queues = parts.catch_up.open_queues(worker.queues)
        all_open = len(queues) == len(worker.queues)
        if worker.burst and (reply.suspended or all_open or parts.catch_up.failed_for_good()):
            return None if parts.batch.carried else EXIT_OK
        if self._idle_too_long():
            return EXIT_OK
        parts.reporter.settle_on("suspended" if reply.suspended else "idle" if queues else "waiting")
        self._slot.write(Phase.IDLE)
        self._summons.listen()
        names = [] if reply.suspended else parts.rq_names(queues)
        patience_s = self._patience(reply.suspended)
        if len(names) == 1:
            parts.batch.wait(names[0], self._wants(), self._summons.callers, patience_s)
        else:
            parts.claims.wait(names, self._summons.callers, patience_s)
        return None

    def _patience(self, suspended: bool) -> float:
        """Seconds until there is something to do without anybody calling."""
        due = self._parts.runtime.next_retry
        until = [1.0 if suspended else POLL_S]
        if due is not None:
            until.append(max(0.01, due - time.monotonic()))
        if self.config.worker.max_idle_s is not None:
            until.append(max(0.01, self._idle_since + self.config.worker.max_idle_s - time.monotonic()))
        return min(until)

    def _idle_too_long(self) -> bool:
        limit = self.config.worker.max_idle_s
        return limit is not None and time.monotonic() - self._idle_since >= limit

    def _exit_after_job(self) -> int | None:
        if self._parts.services.loop.holds_leftovers:
            log.warning("a task that a job left cannot be cancelled: a fresh executor takes over")
            return EXIT_RECYCLE
        if self.config.max_jobs is not None and self._jobs >= self.config.max_jobs:
            return EXIT_OK
        recycling = self._recycling
        if recycling.limited and recycling.must_leave(self._jobs, more=self._parts.batch.waiting > 0):
            return EXIT_RECYCLE
        return None

    def _ask_for_successor(self) -> bool:
        """
        Ask for a fresh executor beside this one; False where that must not be.

        Two of a variable with ``replace="free"`` may not fit, and two executors could run more jobs than are left.
        """
        catch_up = self._parts.catch_up
        if self.config.max_jobs is not None or catch_up.fills_the_room:
            return False
        with contextlib.suppress(OSError):  # it is gone, and so are we soon
            self._summons.say(" ".join(["recycle", *catch_up.held]).encode())
        self._parts.reporter.publish()
        return True

    def _unfit(self) -> int | None:
        """The exit code of one that cannot follow the executor it was to follow: that one goes on, and has more."""
        missing = self._parts.catch_up.failed(self.config.heritage or ())
        if not missing:
            return None
        log.warning("a fresh executor could not build %s; the one before goes on", ", ".join(missing))
        return EXIT_UNFIT

    def _maintain(self) -> None:
        if time.monotonic() - self._maintained_at > MAINTENANCE_S:
            self._maintained_at = time.monotonic()
            self._parts.maintain()

    # -- Redis ---------------------------------------------------------------------------------------------

    def _tell_of_outage(self, error: RedisError | OSError) -> None:
        why = str(explain(error, self.config.worker.settings.url)).removesuffix("?")
        self._parts.batch.outage.tell("%s; results are kept, and it is tried again", why)

    def _become_copy(self) -> None:
        """In a process that a job forks: it owns neither slot nor ledger."""
        self._slot.detach()
        self._ledger.detach()

    def _until_connected(self, attempt: Any) -> bool:
        """Repeat until it works; False if told to stop meanwhile."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                attempt()
                return True
            except REDIS_ERRORS as error:
                self._tell_of_outage(error)
            self._summons.pause(pause_s)
            if self._summons.heed():
                return False
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
