"""Lets values go: those built on others first, the user's teardown once for each, errors logged only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from envq.runtime.calling import INTERRUPTS, Caller, traceback_text
from envq.runtime.ports import Ports, logger
from envq.runtime.table import Frame, Phase, Table
from envq.runtime.value import Value, in_order, with_dependents


class LettingGo:
    """The one way a value leaves this process."""

    def __init__(self, table: Table, ports: Ports, caller: Caller) -> None:
        self._table = table
        self._limits = ports.limits
        self._caller = caller

    def let_go(self, values: Iterable[Value]) -> list[Value]:
        """Let go of these and all that was built on them; returns which, in order of building."""
        doomed = with_dependents(values, self._table.living())
        for value in reversed(doomed):
            if not value.gone:
                self._table.detach(value)
                self.tear_down(value)
        return doomed

    def sweep(self) -> None:
        """Let go of the replaced values that nothing is built on any more.

        Not while a build runs, which may stand on one of them.
        """
        if self._table.frames:
            return
        for value in reversed(in_order(self._table.retired)):
            if not any(value in each.grounds.values() for each in self._table.living()):
                self.let_go([value])

    def tear_down(self, value: Value) -> None:
        """Run the user's teardown, then the rest of a generator initializer, and drop the object."""
        teardown, rest = value.callables.teardown, value.rest
        try:
            if teardown is not None:
                self._guarded(value, "teardown", partial(self._caller.call, teardown, value.made))
        finally:
            value.rest = None
            try:
                if rest is not None:
                    self._guarded(value, "rest of the initializer", partial(self._caller.end, rest))
            finally:
                value.made = None

    def _guarded(self, value: Value, what: str, action: Callable[[], Any]) -> None:
        limit = self._limits.limit(value.recipe.reset_timeout, f"the {what} of {value.name!r}")
        try:
            with Frame(self._table, value.name, Phase.TEARDOWN, value), limit:
                action()
        except BaseException as error:  # the user's code: its failure must not keep a value
            if self._table.serving and isinstance(error, INTERRUPTS):
                raise
            # As text: a log handler that keeps its records would keep the value with the traceback's frames.
            logger.error("the %s of %r raised, it is let go all the same:\n%s", what, value.name, traceback_text(error))
