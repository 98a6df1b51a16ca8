"""What a figure depends on besides the code: machine and versions."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from pathlib import Path

from harness.processes import venv_bin


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
    """Of Python, the server, and each queue as its environment has it; of envq the commit that was installed."""
    server = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=False).stdout
    found = {"python": platform.python_version(), "redis-server": _first(r"v=(\S+)", server)}
    environments = venv_bin("").parent
    commit = environments / "envq.commit"
    found["envq"] = commit.read_text().strip() if commit.exists() else "unknown"
    for path in sorted(environments.glob("*.txt")):
        listed = dict(re.findall(r"^([\w-]+)(?:\[\w+\])?==(\S+)$", path.read_text(), re.MULTILINE))
        if path.stem in listed:
            found[path.stem] = listed[path.stem]
    return found


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
