"""The machine and the versions that figures belong to."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

_PACKAGES: Final = {"envq": "envq", "rq": "rq", "redis_py": "redis", "hiredis": "hiredis"}
CPU_INFO: Final = Path("/proc/cpuinfo")
_MODEL: Final = "model name"


def machine() -> dict[str, Any]:
    """Processor, cores this process may use, memory, operating system."""
    return {
        "cpu": cpu_model(),
        "cores": cores(),
        "memory_mib": memory_mib(),
        "os": platform.platform(),
    }


def versions() -> dict[str, Any]:
    """Of Python and the packages that take part; None for one that is not installed."""
    found: dict[str, Any] = {"python": f"{platform.python_implementation()} {platform.python_version()}"}
    for name, package in _PACKAGES.items():
        try:
            found[name] = version(package)
        except PackageNotFoundError:
            found[name] = None
    return found


def cpu_model() -> str:
    """As the operating system names it."""
    with contextlib.suppress(OSError):
        for line in CPU_INFO.read_text(errors="replace").splitlines():
            if line.startswith(_MODEL):
                return line.partition(":")[2].strip()
    if sys.platform == "darwin":
        asked = ["sysctl", "-n", "machdep.cpu.brand_string"]
        with contextlib.suppress(OSError):
            return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return platform.processor() or platform.machine()


def cores() -> int:
    """How many this process may run on."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_mib() -> int:
    """Of the machine; 0 where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (OSError, ValueError):
        return 0
