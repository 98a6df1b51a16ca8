"""What becomes of the claims of an executor that died: the one place that decides who is to blame."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Final, Literal

from envq.store.scripts import Why
from envq.workers.config import EXIT_BUILD_FAILED, EXIT_OK, EXIT_RECYCLE, EXIT_UNFIT
from envq.workers.exits import describe_exit
from envq.workers.slot import Phase, SlotView, version_built

UNKNOWN: Final = "?"
_ORDERLY: Final = frozenset({EXIT_OK, EXIT_RECYCLE, EXIT_BUILD_FAILED, EXIT_UNFIT, -signal.SIGTERM})


@dataclass(frozen=True)
class Intent:
    """Why a supervisor killed an executor."""

    why: Literal["timeout", "stopped", "build", "removed", "command", "cold"]
    detail: str
    job_id: str = ""  # what it was meant for


@dataclass(frozen=True)
class BrokenBuild:
    """A build that did not end because its process did; ``blamed`` if it killed the process."""

    variable: str
    version: int
    blamed: bool


@dataclass(frozen=True)
class Death:
    """A process that ended, and what its slot said last."""

    executor: str
    pid: int
    exit_code: int
    view: SlotView
    intent: Intent | None = None
    peak_mib: int = 0  # of memory; 0: unknown
    ends: tuple[bytes, ...] = ()  # of jobs that had ended, not stored yet
    beside: bool = False  # it was getting ready beside the one it was to follow
    read: tuple[str, ...] = ()  # variables that the job had read

    @property
    def ran(self) -> str:
        """The id of the job that had begun and was not at its end, "" for none, "?" where only Redis can tell."""
        return UNKNOWN if self.view.cut else self.view.ran

    @property
    def build(self) -> BrokenBuild | None:
        """
        The build it died in; nobody's fault where it was told to go.

        Nor where there were two of everything: the other one shows that the build works.
        """
        version = version_built(self.view.detail)
        if self.view.phase is not Phase.BUILDING or not version:
            return None
        blamed = not self.beside and (self.intent is None or self.intent.why == "build")
        return BrokenBuild(self.view.subject, version, blamed)

    @property
    def clean(self) -> bool:
        """It exited by itself with code 0 outside of user code."""
        return self.exit_code == 0 and not self.ran

    @property
    def orderly(self) -> bool:
        """Nothing to tell anybody: it left as it should, or it was told to go while it did nothing."""
        if self.intent is not None:
            return self.intent.why == "cold"
        return not self.ran and self.exit_code in _ORDERLY

    @property
    def text(self) -> str:
        """One line for logs, events and the error of the job."""
        how = describe_exit(self.exit_code, killed_by_us=self.intent is not None)
        because = f": {self.intent.detail}" if self.intent else ""
        memory = f" (peak memory {self.peak_mib} MiB)" if self.peak_mib else ""
        used = f" with {', '.join(self.read)} in use" if self.read else ""
        return f"executor {self.executor} (pid {self.pid}) {how} {_doing(self.view)}{used}{because}{memory}"


@dataclass(frozen=True)
class Verdict:
    """The arguments of a release."""

    running: str
    why: Why
    detail: str


def judge(death: Death) -> Verdict:
    """
    Blame the job that ran, and no other.

    A kill meant for a job that had just ended hits the next one, which is innocent: handed back, uncounted.
    """
    intent = death.intent
    if not death.ran or (intent is not None and intent.why == "cold"):
        return Verdict(death.ran, "handback", intent.detail if intent else "")
    if intent is not None and (intent.why == "timeout" or intent.why == "stopped"):
        if death.ran not in (intent.job_id, UNKNOWN):
            return Verdict(death.ran, "handback", f"its executor was killed for job {intent.job_id}")
        return Verdict(UNKNOWN if death.view.cut else intent.job_id or death.ran, intent.why, intent.detail)
    return Verdict(death.ran, "crash", death.text)


def _doing(view: SlotView) -> str:
    match view.phase:
        case Phase.STARTING:
            return "while it started"
        case Phase.BUILDING:
            return f"while it built {view.subject} version {version_built(view.detail)}"
        case Phase.RESETTING:
            return f"while it reset {view.subject}"
        case Phase.RUNNING:
            return f"while it ran job {view.subject}"
        case Phase.STORING | Phase.PREPARING if view.subject:
            return f"while it {'stored' if view.phase is Phase.STORING else 'prepared'} job {view.subject}"
        case Phase.STOPPING:
            return "while it stopped"
        case _:
            return "between jobs"
