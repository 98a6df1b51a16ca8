"""One ``envq worker``: a single-threaded loop over signals, pub/sub, control pipes and clocks.

It never unpickles, never runs user code and never waits longer than its connection's time limit; what is slow
or dangerous happens in its processes.
"""

from __future__ import annotations

import logging
import os
import selectors
import time
from functools import partial
from typing import Final

from redis import Redis

from envq.store import keys as rq
from envq.store.connection import database_number
from envq.store.keys import Keys
from envq.workers.config import EXIT_BUILD_FAILED, WorkerConfig
from envq.workers.executor import run_executor
from envq.workers.supervision.crew import Crew
from envq.workers.supervision.enforcement import Enforcement
from envq.workers.supervision.executor_process import ExecutorProcess, Target
from envq.workers.supervision.heartbeat import Heartbeat
from envq.workers.supervision.link import Link
from envq.workers.supervision.obedience import Obedience
from envq.workers.supervision.processes import Nursery, reap_strangers
from envq.workers.supervision.reaper import Reaper
from envq.workers.supervision.relief import Relief
from envq.workers.supervision.scheduler import SchedulerProcess
from envq.workers.supervision.settlement import Settlement, Settlements
from envq.workers.supervision.signals import DUMP_STACKS, HANGUP, SignalInbox, hangup_stops
from envq.workers.supervision.stopping import Stopping
from envq.workers.supervision.subscription import Subscription
from envq.workers.supervision.verdict import Death, Intent, judge
from envq.workers.watchman import Watchman

TICK_S: Final = 1.0
BUSY_TICK_S: Final = 0.25  # while somebody has a time limit
FAREWELL_S: Final = 2.0  # what cannot be settled by then is left to other workers' reapers

log = logging.getLogger("envq.worker")


class Supervisor:
    """Starts and keeps the executors of one worker until told to stop; ``run`` once, in the main thread."""

    def __init__(self, config: WorkerConfig, target: Target = run_executor) -> None:
        self._config = config
        self._link = Link(config.settings.url, config.lease)
        self._keys = Keys(config.settings.namespace, database_number(self._link.client))
        self._selector = selectors.DefaultSelector()
        self._signals = SignalInbox()
        self._watchman = Watchman()
        nursery = Nursery(config, self._watchman, self._forget)
        self._crew = Crew(config, target, nursery, self._selector)
        self._scheduler = SchedulerProcess(config, self._keys, nursery)
        self._enforcement = Enforcement(config.kill_grace_s)
        self._obedience = Obedience(self._keys, self._link, self._crew, self._enforcement)
        self._subscription = Subscription(
            self._link.client,
            self._selector,
            on_message=self._obedience.take,
            on_subscribed=self._obedience.look_at_declarations,
        )
        self._heartbeat = Heartbeat(self._keys, config.lease)
        self._settlements = Settlements(self._keys)
        self._reaper = Reaper(self._keys, config.lease)
        self._relief = Relief(self._keys)
        self._stopping = Stopping(config.grace_s, hangup_stops=hangup_stops())
        self._finished_at: float | None = None

    def run(self) -> int:
        """Work until stopped or done; the exit code of the command."""
        with self._signals:
            self._selector.register(self._signals, selectors.EVENT_READ, self._on_signals)
            self._subscription.add(self._keys.env_channel)
            log.debug("worker %s (pid %d) starts: %s", self._config.label, os.getpid(), self._describe())
            try:
                while not self._over():
                    self._turn()
            finally:
                self._leave()
        log.info("worker %s (pid %d) has stopped", self._config.label, os.getpid())
        return EXIT_BUILD_FAILED if self._crew.build_failed else self._stopping.exit_code

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._pause_s()):
            key.data()
        for death in self._crew.bury(time.monotonic()):
            self._on_death(death)
        reap_strangers([*(executor.pid for executor in self._crew), *self._scheduler.pids, *self._watchman.pids])
        self._stop_if_asked()
        self._enforcement.enforce(self._crew)
        self._crew.renew_next()
        self._scheduler.tend(server_up=self._link.up)
        self._subscription.tend()
        for executor in self._crew:
            executor.flush()
        if self._link.up:
            for executor in self._relief.look(self._crew):
                self._link.exchange(partial(self._relieve, executor))
        if self._link.due:
            self._link.exchange(self._talk)
        # Without Redis a fresh executor could do nothing but fail.
        if self._link.up and self._scheduler.round_done:
            self._fill()
        self._watchman.tend()

    def _pause_s(self) -> float:
        kill_at = self._enforcement.next_due(self._crew)
        busy = kill_at is not None or self._enforcement.waiting or self._stopping.asked
        longest = BUSY_TICK_S if busy or not self._scheduler.round_done else TICK_S
        start_at = self._crew.next_start if self._link.up and self._scheduler.round_done else None
        cold_at = None if self._stopping.cold else self._stopping.cold_at
        look_at = self._relief.next_look(self._crew) if self._link.up else None
        talk_at = min(self._heartbeat.due_at, self._reaper.due_at) if self._link.up else None
        moments = [start_at, self._link.retry_at, self._subscription.retry_at, cold_at, kill_at, look_at, talk_at]
        now = time.monotonic()
        return max(0.0, min([longest, *(moment - now for moment in moments if moment is not None)]))

    def _on_signals(self) -> None:
        for number in self._signals.read():
            if what := self._stopping.take(number):
                log.info("received %s: %s", number.name, what)
            elif number is HANGUP:
                log.info("received SIGHUP: replacing the executors one after the other")
                self._crew.renew()
            elif number in DUMP_STACKS:
                self._crew.dump_stacks()

    def _stop_if_asked(self) -> None:
        if self._crew.build_failed:
            self._stopping.ask()
        if self._stopping.asked:
            self._crew.retire()
        if self._stopping.asked or self._crew.finished:
            self._scheduler.stop()
        if self._stopping.cold:
            self._crew.kill(Intent("cold", "its worker was stopped by force"))
            self._scheduler.kill()

    def _over(self) -> bool:
        if not (self._crew.finished and self._scheduler.gone):
            return False
        now = time.monotonic()
        self._finished_at = self._finished_at or now
        return not self._settlements or now - self._finished_at > FAREWELL_S

    def _leave(self) -> None:
        self._crew.kill(Intent("cold", "its worker ended"))
        self._scheduler.kill()
        if self._settlements:
            log.warning("Redis is away; other workers will take over what was left")
        else:
            self._link.exchange(self._settlements.hand_over)
        self._subscription.close()
        self._link.close()
        self._selector.close()
        self._watchman.close()

    def _fill(self) -> None:
        for executor in self._crew.fill(time.monotonic()):
            self._subscription.add(rq.worker_commands(executor.name))

    def _on_death(self, death: Death) -> None:
        log.log(logging.DEBUG if death.orderly else logging.ERROR, "%s", death.text)
        self._subscription.drop(rq.worker_commands(death.executor))
        self._relief.forget(death.executor)
        died = "" if death.orderly else death.text
        sudden = death.exit_code < 0
        self._settlements.add(Settlement(death.executor, judge(death), died, death.build, death.ends, sudden))

    def _talk(self, connection: Redis) -> None:
        if self._heartbeat.give(connection, self._crew, at_once=not self._link.up):
            self._link.answered()
            self._obedience.cancel_builds(connection)
        if self._settlements.due and self._settlements.work_off(connection):
            self._ring()
        ours = {executor.name for executor in self._crew} | self._settlements.executors
        for settlement in self._reaper.look(connection, ours, self._link.contact_s):
            self._settlements.add(settlement)

    def _relieve(self, executor: ExecutorProcess, connection: Redis) -> None:
        self._relief.give(connection, executor)

    def _ring(self) -> None:
        for executor in self._crew:
            executor.tell(b"wake")

    def _forget(self) -> None:
        """In a forked child: let go of everything that is the supervisor's."""
        self._selector.close()
        self._signals.close()
        self._crew.forget()
        self._watchman.forget()
        self._subscription.forget()
        self._link.forget()

    def _describe(self) -> str:
        config = self._config
        count = f"{config.executors} executor{'' if config.executors == 1 else 's'}"
        scheduler = "on" if config.scheduler else "off"
        return f"{count}, queues {', '.join(config.queues)}, scheduler {scheduler}"
