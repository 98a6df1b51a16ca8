"""``envq health``: a cheap answer for probes."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from typing import Final

from envq.cli.overview import living
from envq.cli.printing import print_json
from envq.cli.readiness import BROKEN
from envq.cli.render import plural
from envq.cli.target import opened
from envq.errors import ServerUnavailable
from envq.store.executor_store import ExecutorView

TAKES_JOBS: Final = ("idle", "busy", "suspended")
GONE: Final = "gone"  # no living executor
STARTING: Final = "starting"  # or building, or waiting for a required variable
READY: Final = "ready"
DEGRADED: Final = "degraded"  # takes jobs, though a variable could not be built


def check(url: str | None, namespace: str | None, *, label: str | None, ready: bool, as_json: bool) -> int:
    """Print the verdict; 0 if it is good enough, else 1, also when Redis cannot be reached."""
    try:
        with opened(url, namespace) as target:
            ours = [view for view in living(target) if _is_ours(view, label)]
    except ServerUnavailable as error:
        verdict, detail = "unknown", str(error)
    else:
        verdict, detail = judge(ours), describe(ours)
    if as_json:
        print_json({"state": verdict, "detail": detail})
    else:
        print(f"{verdict}: {detail}")
    return 0 if verdict in ((READY, DEGRADED) if ready else (STARTING, READY, DEGRADED)) else 1


def judge(executors: Sequence[ExecutorView]) -> str:
    """One word for a worker."""
    if not executors:
        return GONE
    if not any(view.state in TAKES_JOBS for view in executors):
        return STARTING
    broken = any(held.state in BROKEN for view in executors for held in view.variables.values())
    return DEGRADED if broken else READY


def describe(executors: Sequence[ExecutorView]) -> str:
    """``2 executors (busy 1, idle 1)``."""
    states = Counter(view.state for view in executors)
    detail = ", ".join(f"{state} {count}" for state, count in sorted(states.items()))
    return plural(len(executors), "executor") + (f" ({detail})" if detail else "")


def _is_ours(view: ExecutorView, label: str | None) -> bool:
    if label is None:
        return view.info.host == platform.node()
    return view.info.worker.rpartition(".")[0] == label
