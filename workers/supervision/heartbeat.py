"""Signs of life of all executors of a worker, whatever they are busy with."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, cast

from redis import Redis

from envq.clock import iso, utc_now
from envq.store.keys import Keys
from envq.store.scripts import Beat, beat
from envq.workers.lease import Lease
from envq.workers.supervision.executor_process import ExecutorProcess


class Heartbeat:
    """Given by the supervisor: a long build or a job that holds the interpreter is not a dead worker."""

    def __init__(self, keys: Keys, lease: Lease) -> None:
        self.due_at = 0.0  # by the monotonic clock
        self._keys = keys
        self._lease = lease
        self._silence_ms = round(lease.silence_s * 1000)

    def give(self, connection: Redis, executors: Iterable[ExecutorProcess], *, at_once: bool) -> bool:
        """Renew all that is to expire, if it is time; True if the server was heard. Raises RedisError."""
        now = time.monotonic()
        if now < self.due_at and not at_once:
            return False
        living = list(executors)
        known = beat(connection, self._keys, [self._sign(executor) for executor in living])
        if not living:
            cast(Any, connection).ping()
        self.due_at = now + self._lease.beat_s
        for executor, registered in zip(living, known, strict=True):
            if executor.born and not registered:
                executor.tell(b"register")
        return True

    def _sign(self, executor: ExecutorProcess) -> Beat:
        view, now = executor.view, utc_now()
        return Beat(executor.name, view.job_id, view.execution_id, iso(now), now.timestamp(), self._silence_ms)
