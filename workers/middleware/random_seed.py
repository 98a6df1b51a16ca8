"""Fresh random numbers for every job: processes that were forked share a state, and jobs share a process."""

from __future__ import annotations

import random
import sys
from typing import Any

from envq.workers.execution.context import CallNext, JobContext


def random_seed(context: JobContext, call_next: CallNext) -> Any:
    """Seed ``random``, and numpy's and torch's generators where they are loaded; the job's own seed if it has one."""
    random.seed(context.job.seed)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed(random.getrandbits(32))
    if torch is not None:
        torch.manual_seed(random.getrandbits(63))
    return call_next(context)
