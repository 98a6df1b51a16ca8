"""What can be told of a variable, and why a build did not succeed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Where one variable stands in this process."""

    DECLARED = "declared"  # not built yet: lazy, or its build was interrupted
    BUILDING = "building"
    READY = "ready"
    FAILED = "failed"
    UPDATE_FAILED = "update failed"  # the value of before goes on serving
    QUARANTINED = "quarantined"


@dataclass(frozen=True)
class ValueState:
    """One variable at one moment; version, digest and epoch are those held, else those tried."""

    name: str
    version: int
    digest: str
    epoch: int
    state: State
    error: str = ""  # with the initializer's traceback
    build_seconds: float = 0.0  # of the last build that succeeded
    builds: int = 0
    resets: int = 0
    uses: int = 0  # jobs that used it, also through what was built on it
    dirty: int = 0  # jobs after which its reset left it other than it was built


@dataclass(frozen=True)
class Failure:
    """Why the last try did not succeed, and when the next is due."""

    identity: tuple[int, str, int]
    text: str
    attempts: int = 1
    next_retry: float | None = None  # on the runtime's clock; None: not by itself
    waits_for: frozenset[str] = frozenset()  # tried again as soon as one of these is built
    cycle: str = ""
    quarantined: bool = False
