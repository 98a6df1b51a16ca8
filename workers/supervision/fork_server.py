"""What the server of ``--start-method forkserver`` imports before anything is forked from it: envq, and its own end."""

from __future__ import annotations

import sys

import envq.workers.executor  # noqa: F401  # pyright: ignore[reportUnusedImport] - each executor finds it there
from envq.workers.supervision.birth import die_with_parent

# Imported by anybody else, this does nothing. The server itself would live as long as one of the executors.
if any("multiprocessing.forkserver" in argument for argument in sys.orig_argv):
    die_with_parent()
