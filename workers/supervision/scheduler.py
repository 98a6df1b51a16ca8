"""RQ's scheduler in a process of its own, under the supervisor's care."""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, cast

import rq.scheduler
from redis import RedisError
from rq.scheduler import RQScheduler

from envq.code.serializer import serializer
from envq.jobs.job import Job
from envq.store.connection import worker_client
from envq.store.keys import Keys
from envq.workers.config import WorkerConfig
from envq.workers.exits import describe_exit
from envq.workers.lease import Lease
from envq.workers.supervision.backoff import Backoff
from envq.workers.supervision.places import HEALTHY_AFTER_S
from envq.workers.supervision.processes import ChildProcess, Nursery
from envq.workers.supervision.signals import STOP, SignalInbox

EXIT_SERVER: Final = 3  # Redis went away; whoever restarts us need not be told why
STOP_WITHIN_S: Final = 3.0
ONCE_WITHIN_S: Final = 10.0
ROUND_S: Final = 1.0
SHORTEST_LOCK_S: Final = 3  # a lock outlives a round that takes long
LONGEST_LOCK_S: Final = 60  # RQ's own

log = logging.getLogger("envq.worker")


class SchedulerProcess:
    """The process, restarted when it dies; in burst mode one round, and the executors start after it."""

    def __init__(self, config: WorkerConfig, keys: Keys, nursery: Nursery) -> None:
        self._url = config.settings.url
        self._queues = [keys.queue_name(name) for name in config.queues]
        # A restarted scheduler gets its own locks back only under the same name; RQ holds them for a minute.
        self._name = f"{config.label}.{os.getpid()}"
        self._nursery = nursery
        self._lease = config.lease
        self._once = config.burst
        self._done = not config.scheduler
        self._child: ChildProcess | None = None
        self._backoff = Backoff()
        self._due_at = 0.0
        self._kill_at = 0.0

    @property
    def round_done(self) -> bool:
        """Executors may start: this is no burst, or what was due is in the queues."""
        return not self._once or self._done

    @property
    def pids(self) -> list[int]:
        """Its process, if there is one."""
        return [self._child.pid] if self._child else []

    @property
    def gone(self) -> bool:
        """No process, and none will follow."""
        return self._done and self._child is None

    def tend(self, *, server_up: bool) -> None:
        """Notice its end, start it again, kill it where it does not stop."""
        now = time.monotonic()
        if self._child is not None:
            self._watch(self._child, now)
        elif not self._done and server_up and now >= self._due_at:
            self._start(now)

    def stop(self) -> None:
        """Let it give its locks back and end."""
        self._done = True
        if self._child is not None and not self._kill_at:
            self._kill_at = time.monotonic() + STOP_WITHIN_S
            self._child.send(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._done = True
        if self._child is not None:
            self._child.kill()

    def _start(self, now: float) -> None:
        try:
            self._child = self._nursery.start(
                "scheduler", run_scheduler, self._url, self._queues, self._name, self._lease, self._once
            )
        except OSError as error:
            log.error("cannot start the scheduler: %s", error)
            self._due_at = now + self._backoff.next()
        self._kill_at = now + ONCE_WITHIN_S if self._once else 0.0

    def _watch(self, child: ChildProcess, now: float) -> None:
        code = child.exit_code
        if code is None:
            if self._kill_at and now >= self._kill_at:
                child.kill()
            return
        self._child = None
        if now - child.started_at > HEALTHY_AFTER_S:
            self._backoff.reset()
        self._due_at = now + self._backoff.next()
        if not self._done and code not in (0, EXIT_SERVER):
            text = describe_exit(code, killed_by_us=bool(self._kill_at))
            log.warning("the scheduler (pid %d) %s", child.pid, text)
        self._done = self._done or self._once
        child.kill()
        child.close()


class Scheduler(RQScheduler):
    """RQ's, but it stops at once, and takes over from a vanished one within its lease."""

    def __init__(self, queues: Sequence[str], url: str, name: str, lease: Lease) -> None:
        self._look_again = timedelta(seconds=lease.look_s)
        super().__init__(
            list(queues),
            connection=worker_client(url),
            # RQ locks for a minute more than the interval, and uses it for nothing else in what is called here.
            interval=lock_seconds(lease) - 60,
            logging_level=logging.WARNING,
            serializer=cast(Any, serializer),
            name=name,
        )

    @property
    def should_reacquire_locks(self) -> bool:
        """RQ itself asks again after 10 minutes only; until then nothing scheduled would run."""
        since: datetime | None = self.lock_acquisition_time
        missing = cast(Any, self)._queue_names != cast(Any, self).acquired_locks
        return missing and (since is None or datetime.now() - since > self._look_again)

    def work(self) -> None:
        """Schedule until told to stop."""
        with SignalInbox() as inbox:
            self.register_birth()
            while not STOP.intersection(inbox.read()):
                self.round()
                select.select([inbox], [], [], ROUND_S)
            self.stop()

    def round(self) -> None:
        """Put what is due into its queues."""
        if self.should_reacquire_locks:
            self.acquire_locks()
        self.heartbeat()
        self.enqueue_scheduled_jobs()


def lock_seconds(lease: Lease) -> int:
    """So long after its last round others wait for a scheduler that vanished."""
    return max(SHORTEST_LOCK_S, min(round(lease.silence_s), LONGEST_LOCK_S))


def run_scheduler(url: str, queues: Sequence[str], name: str, lease: Lease, once: bool) -> None:
    """The process's target; Redis going away ends it with EXIT_SERVER."""
    # RQ names its class there: with ours, what is not signed is moved on without being unpickled.
    rq.scheduler.Job = Job  # pyright: ignore[reportPrivateImportUsage, reportAttributeAccessIssue]
    scheduler = Scheduler(queues, url, name, lease)
    try:
        if once:
            scheduler.register_birth()
            scheduler.round()
            scheduler.stop()
        else:
            scheduler.work()
    except (RedisError, OSError) as error:
        log.debug("the scheduler lost Redis: %s", error)
        sys.exit(EXIT_SERVER)
