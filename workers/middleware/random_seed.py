"""Fresh random numbers for every job: processes that were forked share a state, and jobs share a process."""

from __future__ import annotations

import os
import random
import sys
from typing import Any

from envq.workers.execution.context import CallNext, JobContext


def random_seed(context: JobContext, call_next: CallNext) -> Any:
    """Seed ``random``, and numpy's and torch's generators where they are loaded; the job's own seed if it has one."""
    random.seed(_seed(context))
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed(random.getrandbits(32))
    if torch is not None:
        torch.manual_seed(random.getrandbits(63))
    return call_next(context)


def _seed(context: JobContext) -> int:
    own = context.claimed.fields.get(b"envq_seed")
    return int(own) if own else int.from_bytes(os.urandom(8))
