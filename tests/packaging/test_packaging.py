"""What a user gets from `pip install envq`: the same from wheel and sdist, on every Python that is here."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.processes import clean_environment
from support.pythons import find_pythons

ROOT = Path(__file__).parents[2]
SOURCES = ("envq", "workers", "cli", "pyproject.toml", "README.md", "LICENSE")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

pytestmark = pytest.mark.timeout(180)


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build(source: Path, *options: str) -> Path:
    """Build from `source` with the `build` tool; return the directory of what came out."""
    out = source.parent / f"dist-{len(list(source.parent.iterdir()))}"
    run(sys.executable, "-m", "build", *options, "--outdir", out, source, cwd=source.parent)
    return out


@pytest.fixture(scope="session")
def source_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources apart from the working tree, where a stale build directory would add files."""
    copy = tmp_path_factory.mktemp("packaging") / "source"
    copy.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="session")
def wheel(source_copy: Path) -> Path:
    """Built straight from the sources."""
    return next(build(source_copy, "--wheel").glob("*.whl"))


@pytest.fixture(scope="session")
def wheel_from_sdist(source_copy: Path) -> Path:
    """Built from the sdist, as pip does where there is no wheel."""
    return next(build(source_copy).glob("*.whl"))


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("RECORD")}


def installed_name(source: Path) -> str:
    directory, *rest = source.parts
    return "/".join(["envq", *rest] if directory == "envq" else ["envq", directory, *rest])


def test_wheel_holds_exactly_the_three_packages(wheel: Path) -> None:
    patterns = ("**/*.py", "**/*.lua", "**/py.typed")
    sources = {
        path.relative_to(ROOT)
        for package in ("envq", "workers", "cli")
        for pattern in patterns
        for path in (ROOT / package).glob(pattern)
    }
    packed = {name for name in contents(wheel) if ".dist-info/" not in name}
    assert packed == {installed_name(source) for source in sources}


def test_wheel_says_that_it_is_typed_and_brings_its_scripts(wheel: Path) -> None:
    packed = contents(wheel).keys()
    assert {"envq/py.typed", "envq/workers/py.typed", "envq/cli/py.typed"} <= packed
    assert [name for name in packed if name.startswith("envq/store/lua/") and name.endswith(".lua")]


def test_sdist_builds_the_same_wheel(wheel: Path, wheel_from_sdist: Path) -> None:
    assert wheel.name == wheel_from_sdist.name
    assert contents(wheel) == contents(wheel_from_sdist)


IMPORTS = """
import importlib.util, envq, envq.workers, envq.cli, envq.runtime, envq.workers.middleware
assert "site-packages" in envq.__file__ and "site-packages" in envq.workers.__file__
for name in ("workers", "cli", "tests", "docker"):
    assert importlib.util.find_spec(name) is None, f"{name} reached site-packages"
"""


@pytest.mark.parametrize("python", find_pythons().values(), ids=find_pythons().keys())
def test_installed_wheel_works_from_another_folder(python: Path, wheel: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    run(python, "-m", "venv", "--without-pip", venv, cwd=tmp_path)
    pip: Sequence[str | Path] = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "--python", venv / "bin/python", "install", "--quiet", wheel, cwd=tmp_path)

    run(venv / "bin/python", "-W", "error", "-c", IMPORTS, cwd=tmp_path)
    assert PROJECT["version"] in run(venv / "bin/envq", "--version", cwd=tmp_path)
    assert PROJECT["version"] in run(venv / "bin/python", "-m", "envq", "--version", cwd=tmp_path)
    assert "worker" in run(venv / "bin/envq", "--help", cwd=tmp_path)
