"""RQ's tests: from the source distribution of one release, downloaded once."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

RELEASE = "3.0.0"  # whose tests expected.toml speaks of
FOLDER = f"rq-{RELEASE}"
_WANTED = (f"{FOLDER}/tests/", f"{FOLDER}/pyproject.toml")


def folder_of_tests(cache: Path, given: Path | None = None) -> Path:
    """
    A folder with RQ's ``tests`` package and nothing of ``rq`` itself, so that what is installed is tested.

    Args:
        given: the source distribution, where it is on disk already; None: pip downloads it
    """
    folder = cache / FOLDER
    if given is None and (folder / "tests").is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tarfile.open(given or _download(cache)) as archive:
        members = [member for member in archive if member.name.startswith(_WANTED)]
        archive.extractall(cache, members, filter="data")
    return folder


def _download(cache: Path) -> Path:
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary", ":all:", "--dest", str(cache)]
    subprocess.run([sys.executable, "-m", "pip", "download", *options, f"rq=={RELEASE}"], check=True)
    return cache / f"{FOLDER}.tar.gz"
