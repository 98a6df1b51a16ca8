"""The Python interpreters of this machine that envq promises to run on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MINORS = ("3.11", "3.12", "3.13")
REPORT = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"


def find_pythons() -> dict[str, Path]:
    """One interpreter for each minor version found, by its version."""
    return {minor: path for minor in MINORS if (path := next(_working(minor), None))}


def _working(minor: str) -> Iterator[Path]:
    for candidate in _candidates(minor):
        done = subprocess.run([candidate, "-c", REPORT], capture_output=True, text=True, check=False)
        if done.stdout.strip() == minor:
            yield candidate


def _candidates(minor: str) -> Iterator[Path]:
    if sys.version_info[:2] == tuple(int(part) for part in minor.split(".")):
        yield Path(sys.executable)
    if on_path := shutil.which(f"python{minor}"):
        yield Path(on_path)
    for root in _pyenv_roots():
        yield from sorted(root.glob(f"{minor}.*/bin/python"), reverse=True)


def _pyenv_roots() -> Iterator[Path]:
    """Where pyenv keeps its versions; beside our own interpreter too, since HOME may point elsewhere."""
    if "PYENV_ROOT" in os.environ:
        yield Path(os.environ["PYENV_ROOT"]) / "versions"
    if "HOME" in os.environ:
        yield Path(os.environ["HOME"]) / ".pyenv" / "versions"
    yield Path(sys.base_prefix).parent
