"""What a figure depends on besides the code: machine, versions, state of the checkout."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from pathlib import Path

from harness.processes import FOLDER, venv_bin


def machine() -> dict[str, str | int]:
    """Processor, memory, kernel."""
    cpu = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    return {
        "cpu": cpu[1] if cpu else platform.processor(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(memory[1]) / 2**20) if memory else 0,
        "kernel": platform.release(),
    }


def versions() -> dict[str, str]:
    """Of Python, the server, envq's commit, and each peer as its environment has it."""
    server = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=False).stdout
    found = {"python": platform.python_version(), "redis-server": _first(r"v=(\S+)", server), "envq": _commit()}
    for path in sorted(venv_bin("").parent.glob("*.txt")):
        listed = dict(re.findall(r"^([\w-]+)(?:\[\w+\])?==(\S+)$", path.read_text(), re.MULTILINE))
        if path.stem in ("rq", "celery", "dramatiq", "huey", "arq", "taskiq", "saq", "streaq"):
            found[path.stem] = listed.get(path.stem, "?")
    return found


def _commit() -> str:
    """The commit of the checkout; ``+`` behind it where files that are measured differ from it."""
    git = ["git", "-C", str(FOLDER)]
    try:
        commit = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "../envq", "../workers"], check=False)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit.stdout.strip() + ("+" if changed.returncode else "")


def calibration_ms() -> float:
    """A fixed loop of pure Python: shows whether the machine itself was slower than in another run."""
    begin = time.perf_counter()
    x = 0
    for i in range(2_000_000):
        x += i & 7
    return (time.perf_counter() - begin) * 1e3


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else "?"
