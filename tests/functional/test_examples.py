"""The programs of examples/ do what they say, against a real server and a real worker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from support.processes import clean_environment
from support.workers import WorkerProcess

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*arguments: str | Path, url: str = "redis://127.0.0.1:1/0", cwd: Path) -> list[str]:
    """Lines that a program prints; one that fails fails the test."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=clean_environment({"ENVQ_URL": url}),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_new_version_of_a_model_takes_over(
    worker: Callable[..., WorkerProcess], redis_url: str, tmp_path: Path
) -> None:
    worker("default", "-w", "2", executors=2)
    assert run(EXAMPLES / "model.py", url=redis_url, cwd=tmp_path) == [
        *(f"kind {kind}, by 1 neighbour(s)" for kind in range(3)),
        *(f"kind {kind}, by 5 neighbour(s)" for kind in range(3)),
    ]


def test_a_client_is_rolled_back_checked_and_kept(
    worker: Callable[..., WorkerProcess], redis_url: str, tmp_path: Path
) -> None:
    worker()
    printed = run(EXAMPLES / "client_with_check.py", url=redis_url, cwd=tmp_path)
    assert printed == ["orders seen: [1, 1, 1]", "processes: 1"]


def test_code_that_uses_envq_is_tested_without_a_server(tmp_path: Path) -> None:
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", EXAMPLES / "tested.py", cwd=tmp_path)


def test_every_example_is_run_by_a_test() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"model.py", "client_with_check.py", "tested.py"}
