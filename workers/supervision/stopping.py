"""When a worker must stop, and how hard: warm at the first request, cold at the second or after the grace."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Final

from envq.workers.config import EXIT_OK
from envq.workers.supervision.signals import HANGUP, STOP

EXIT_COLD: Final = 1
SAME_REQUEST_S: Final = 0.1  # Ctrl-C reaches a worker twice where a wrapper command passes it on


class Stopping:
    """
    What was asked for so far.

    Args:
        grace_s: from a warm stop to a cold one; None: it stays warm
        hangup_stops: SIGHUP means that the terminal is closed
    """

    def __init__(
        self, grace_s: float | None, clock: Callable[[], float] = time.monotonic, *, hangup_stops: bool = False
    ) -> None:
        self.asked = False
        self.exit_code = EXIT_OK
        self.cold_at: float | None = None  # by the clock; None: never by itself
        self._grace_s = grace_s
        self._clock = clock
        self._hangup_stops = hangup_stops
        self._asked_at = 0.0

    @property
    def cold(self) -> bool:
        """Running jobs are to be cut off and handed back."""
        return self.cold_at is not None and self._clock() >= self.cold_at

    def ask(self) -> None:
        """Stop warm, unless it is stopping already."""
        if self.asked:
            return
        self.asked, self._asked_at = True, self._clock()
        if self._grace_s is not None:
            self.cold_at = self._asked_at + self._grace_s

    def take(self, number: signal.Signals) -> str:
        """Note a signal; what it leads to, for the log, "" where it does not mean to stop."""
        if number == HANGUP and self._hangup_stops:
            self.ask()  # never cold: both the shell and the kernel send it
            return "the terminal is closed; finishing running jobs"
        if number not in STOP:
            return ""
        if not self.asked:
            self.ask()
            return "finishing running jobs; once more ends them at once"
        if self._clock() - self._asked_at < SAME_REQUEST_S:
            return "the same request again"
        self.cold_at, self.exit_code = self._clock(), EXIT_COLD
        return "ending running jobs; they go back to their queues"
