"""Puts used values back, and fails closed: what cannot be put back is rebuilt, or nobody gets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envq.runtime.calling import Caller, describe, traceback_text
from envq.runtime.comparing import Comparing
from envq.runtime.ports import Ports, TimeLimit, logger, tell
from envq.runtime.replacing import Replacing
from envq.runtime.table import Frame, Phase, Table
from envq.runtime.value import Value
from envq.variables import REBUILD


class Resetting:
    """Between jobs; nothing here raises because of the user's code."""

    def __init__(self, table: Table, ports: Ports, caller: Caller, replacing: Replacing, comparing: Comparing) -> None:
        self._table = table
        self._ports = ports
        self._caller = caller
        self._replacing = replacing
        self._comparing = comparing

    def clean_used(self) -> None:
        """Reset everything that is used, what others are built on first."""
        self._table.hide_cache()
        used = self._table.used
        while used:
            value = next(iter(used))
            self.clean(value)
            if value.gone:  # let go already: nobody will get it again
                used.pop(value, None)

    def clean(self, value: Value) -> None:
        """Reset it and what it is built on, as far as they are used; it may be let go and rebuilt thereby."""
        for each in (*value.below, value):
            if each in self._table.used:
                began = self._ports.clock()
                self._clean(each)
                if (slot := self._table.slots.get(each.name)) is not None:
                    slot.reset_seconds = self._ports.clock() - began

    def _clean(self, value: Value) -> None:
        slot = self._table.slots.get(value.name)
        if slot is not None:
            slot.resets += 1
        if value.distrust:
            self._give_up(value, value.distrust)
            return
        reinitializer = value.callables.reinitializer
        if reinitializer is None or value.provisional:
            self._replacing.rebuild([value])
        elif reason := self._put_back(value, reinitializer):
            self._give_up(value, reason)

    def _put_back(self, value: Value, reinitializer: Callable[[Any], Any]) -> str:
        """Run the reinitializer; returns what went wrong."""
        limit = self._ports.limits.limit(value.recipe.reset_timeout, value.reset_title)
        try:
            with Frame(self._table, value.name, Phase.RESET, value), limit:
                result = self._caller.call(reinitializer, value.made)
        except TimeLimit:
            return f"its reinitializer ran past reset_timeout ({value.recipe.reset_timeout:g} s)"
        except BaseException as error:  # noqa: BLE001 - the user's code: interrupted or broken, it is not clean
            logger.warning("the reinitializer of %r raised:\n%s", value.name, traceback_text(error))
            return f"its reinitializer raised {describe(error)}"
        if result is REBUILD:
            return "its reinitializer returned envq.REBUILD"
        if result is None and value.made is not None:
            return "its reinitializer returned None (is a `return` missing?)"
        self._is_clean(value, result)
        return ""

    def _is_clean(self, value: Value, result: object) -> None:
        became_another = result is not value.made
        value.made = result
        self._table.used.pop(value, None)
        if became_another:
            self._replacing.rebuild_what_stands_on(value)
        self._comparing.look(value)

    def _give_up(self, value: Value, reason: str) -> None:
        logger.warning("environment variable %r is rebuilt after a job: %s", value.name, reason)
        tell(self._ports.listener.reset_failed, value.name, reason)
        self._replacing.rebuild([value])
