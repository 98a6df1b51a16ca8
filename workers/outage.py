"""How often an outage of Redis is told: when it begins, every half minute while it lasts, and when it is over."""

from __future__ import annotations

import logging
import time
from typing import Final

AGAIN_AFTER_S: Final = 30.0

log = logging.getLogger("envq.worker")


class Outage:
    """What one process has said of it."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._again_at = 0.0

    def tell(self, message: str, *arguments: object) -> None:
        """Warn, if it is time to."""
        now = time.monotonic()
        if self._began is None:
            self._began = now
        elif now < self._again_at:
            log.debug(message, *arguments)
            return
        self._again_at = now + AGAIN_AFTER_S
        log.warning(message, *arguments)

    def over(self) -> None:
        """The server did what it was asked."""
        if self._began is not None:
            log.info("Redis answers again, after %.1f s", time.monotonic() - self._began)
            self._began = None
