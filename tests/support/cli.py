"""The `envq` command, run to its end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from support.processes import clean_environment

COMMAND = (sys.executable, "-P", "-m", "envq")


def envq(
    *arguments: str,
    url: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 30.0,
) -> subprocess.CompletedProcess[str]:
    """Run it; stdout, stderr and the exit code."""
    variables = {"ENVQ_URL": url} if url else {}
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=clean_environment(variables | dict(env or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def assert_one_line(done: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
    """It ended with the code and exactly one line on stderr, which holds the parts and no traceback."""
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("envq: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    for part in parts:
        assert part in done.stderr
