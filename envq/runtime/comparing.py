"""Compares values after their reset with the fresh ones, where a fingerprint is given (C19). Changes nothing."""

from __future__ import annotations

from envq.runtime.calling import INTERRUPTS, describe
from envq.runtime.ports import Ports, TimeLimit, logger, tell
from envq.runtime.table import Frame, Phase, Table
from envq.runtime.value import Value


class Comparing:
    """What cannot be read is said once for each version; a difference once for each function that leaves it."""

    def __init__(self, table: Table, ports: Ports) -> None:
        self._table = table
        self._ports = ports
        self._told: set[tuple[str, tuple[int, str, int], str]] = set()

    def note_fresh(self, value: Value) -> None:
        """Right after its build."""
        value.fresh = value.last = self._read(value)

    def look(self, value: Value) -> None:
        """After its reset. Blames a job for what it has changed, not those after it that leave the value alone."""
        if value.fresh is None:
            return
        now = self._read(value)
        if now is None:
            return
        if now not in (value.fresh, value.last):
            self._tell_dirty(value)
        value.last = now

    def _read(self, value: Value) -> str | None:
        """Its content in short; None where that cannot be told, or nobody asked for it."""
        if self._ports.fingerprint is None:
            return None
        seconds = value.recipe.reset_timeout
        limit = self._ports.limits.limit(seconds, f"comparing {value.name!r}")
        try:
            with Frame(self._table, value.name, Phase.COMPARE, value), limit:
                return self._ports.fingerprint(value.made)
        except TimeLimit:
            self._tell_unreadable(value, f"reading it takes more than reset_timeout ({seconds:g} s)")
        except BaseException as error:  # the user's code runs here; a diagnosis must not break anything
            if self._table.serving and isinstance(error, INTERRUPTS):
                raise
            self._tell_unreadable(value, describe(error))
        return None

    def _tell_unreadable(self, value: Value, why: str) -> None:
        if self._is_news(value, "unreadable"):
            logger.warning("environment variable %r cannot be compared after its resets: %s", value.name, why)

    def _tell_dirty(self, value: Value) -> None:
        job, function = self._table.job, self._table.function
        if (slot := self._table.slots.get(value.name)) is not None:
            slot.dirty += 1
        if self._is_news(value, f"dirty {function or job}"):
            logger.warning(
                "environment variable %r is not as it was built, after job %s%s and its reset",
                value.name, job, f" ({function})" * bool(function),
            )  # fmt: skip
            tell(self._ports.listener.dirty, value.name, job, function)

    def _is_news(self, value: Value, what: str) -> bool:
        key = (value.name, value.recipe.identity, what)
        is_news = key not in self._told
        self._told.add(key)
        return is_news
