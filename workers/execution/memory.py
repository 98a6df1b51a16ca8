"""The resident memory of an executor: what it held once its variables were built, and what came since."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

_MIB: Final = 1024 * 1024
_PEAK_UNIT: Final = 1 if sys.platform == "darwin" else 1024


def resident_mib() -> float:
    """Resident memory of this process; its peak where the system tells no more."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as statm:  # noqa: PTH123 - half the time, in a busy executor
            return int(statm.read().split()[1]) * resource.getpagesize() / _MIB
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _PEAK_UNIT / _MIB


class Memory:
    """
    Tells growth from what the variables need.

    Attributes:
        baseline_mib: what the process would hold if nothing had grown since the variables were built
    """

    def __init__(self, resident: Callable[[], float] = resident_mib) -> None:
        self._resident = resident
        self._building = False
        self.baseline_mib = resident()

    def __str__(self) -> str:
        return f"{self.baseline_mib:.0f} MiB with its variables built, {self.grown_mib:+.1f} MiB since"

    def begin(self) -> None:
        """Nothing is built yet: what the process holds now is its baseline, and what is built comes on top."""
        self.baseline_mib = self._resident()

    @property
    def grown_mib(self) -> float:
        """How much has come since; may be negative, where what was let go was larger than what replaced it."""
        return self._resident() - self.baseline_mib

    @contextmanager
    def built(self) -> Generator[None]:
        """What is taken or given back inside belongs to the variables; blocks inside each other count once."""
        if self._building:
            yield
            return
        self._building, before = True, self._resident()
        try:
            yield
        finally:
            self._building = False
            self.baseline_mib += self._resident() - before
