"""Processes that do not outlive the one that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

# Run in the child, then replaced by the command: on Linux the kernel signals the child when its parent dies, even
# by SIGKILL. A `preexec_fn` would do the same in a forked copy of a process that may have threads.
_BOUND: Final = """
import os, sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, int(sys.argv[2]))
if os.getppid() != int(sys.argv[1]):
    sys.exit("the process that wanted this one is gone")
os.execvp(sys.argv[3], sys.argv[3:])
"""


def start_bound(
    command: Sequence[str | Path],
    *,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    at_parents_death: signal.Signals = signal.SIGTERM,
) -> subprocess.Popen[bytes]:
    """
    Start a command in a session of its own, so that Ctrl-C reaches only us and we decide the order of stopping.

    On Linux it gets ``at_parents_death`` when the calling *thread* ends; elsewhere it must be stopped.
    """
    bound = [sys.executable, "-I", "-S", "-c", _BOUND, str(os.getpid()), str(int(at_parents_death))]
    return subprocess.Popen(
        [*bound, *(str(part) for part in command)],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )


def stop(process: subprocess.Popen[bytes], *, patience_s: Sequence[float]) -> int:
    """Send SIGTERM once for each entry of ``patience_s``, waiting so long after it; then kill. The exit code."""
    for seconds in patience_s:
        process.terminate()
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    return process.wait()
