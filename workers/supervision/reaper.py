"""Executors of other workers that vanished with their host: their claims go back to be run elsewhere."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Collection

from redis import Redis

from envq.store.keys import Keys
from envq.store.scripts import silent_executors
from envq.workers.lease import Lease
from envq.workers.supervision.settlement import Settlement
from envq.workers.supervision.verdict import UNKNOWN, Verdict

log = logging.getLogger("envq.worker")


class Reaper:
    """Looks for silent executors now and then."""

    def __init__(self, keys: Keys, lease: Lease) -> None:
        self.due_at = 0.0  # by the monotonic clock
        self._keys = keys
        self._lease = lease

    def look(self, connection: Redis, ours: Collection[str], contact_s: float) -> list[Settlement]:
        """
        What must be settled for executors that are none of ours.

        Args:
            contact_s: how long we ourselves have been in contact. After an outage of Redis everybody looks
                dead; the living have given a sign before we may judge.
        """
        now = time.monotonic()
        if now < self.due_at:
            return []
        # Workers that started together need not all look at the same moment.
        self.due_at = now + self._lease.look_s * random.uniform(0.8, 1.2)
        silent = silent_executors(
            connection,
            self._keys,
            contact_ms=round(contact_s * 1000),
            usually_ms=round(self._lease.silence_s * 1000),
        )
        return [_vanished(name) for name in silent if name not in ours]


def _vanished(name: str) -> Settlement:
    text = f"executor {name} gave no sign of life in time: its host is gone or cannot reach Redis"
    log.warning("%s", text)
    # Nobody can know what ran: the job's own record decides.
    return Settlement(name, Verdict(UNKNOWN, "crash", text), died=text)
