#!/usr/bin/env python3
"""Run RQ's own tests with envq's worker, queue and job in place of RQ's, and compare with expected.toml.

Exit code 1 when a test fails that is not listed there, or one that is listed passes; 2 when they cannot be run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

from support.processes import clean_environment  # noqa: E402

from compat.source import RELEASE, folder_of_tests  # noqa: E402 - the folder of the tests is on the path from here on
from compat.verdict import Expected, Result, judge, table  # noqa: E402

HANGS_AFTER_S = 90  # one test
GIVEN_UP_AFTER_S = 900  # all of them


def main() -> int:
    arguments = _arguments()
    if version("rq") != RELEASE:
        print(f"rq {version('rq')} is installed; these are the tests of {RELEASE}", file=sys.stderr)
        return 2
    folder = folder_of_tests(arguments.cache, arguments.sdist)
    began = time.monotonic()
    try:
        expected = _expected(arguments.classes)
        tests = _run(folder, arguments, expected, _selection(folder, arguments.tests), arguments.processes)
        again = [name for name, test in tests.items() if test.outcome == "failed" and not expected.may_fail(name)]
        if again:  # RQ's tests sleep, and a busy machine oversleeps: those that fail have one more try, alone
            print(f"once more, alone: {' '.join(again)}")
            tests |= _run(folder, arguments, expected, [f"tests/{name}" for name in again], 0)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2
    verdict = judge(tests, expected, complete=arguments.classes == "envq" and not arguments.tests)
    print("\n".join(table(verdict)))
    for name, surprise in sorted(verdict.surprises.items()):
        print(f"UNEXPECTED {name}: {' '.join(surprise.split())[:300]}")
    print(f"RQ {RELEASE}, classes of {arguments.classes}, {time.monotonic() - began:.0f} s")
    return 1 if verdict.surprises else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", help="files, or tests, as test_job.py::TestJob::test_fetch (default: all)")
    parser.add_argument("--sdist", type=Path, help="RQ's source distribution, where it is on disk already")
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "compat", help="where its tests are kept")
    parser.add_argument(
        "--classes",
        choices=["envq", "envq-workers", "envq-clients", "rq"],
        default="envq",
        help="envq: all (default); envq-workers: with RQ's queue and job; envq-clients: with RQ's worker; rq: none",
    )
    parser.add_argument("--server", default="valkey", help="as in pytest --server (default: valkey)")
    parser.add_argument("--processes", type=int, default=2, help="how many run at once (default: 2)")
    parser.add_argument("--slow", action="store_true", help="also those that RQ runs on request only; 90 s more")
    return parser.parse_args()


def _expected(classes: str) -> Expected:
    """The list is about all classes of envq together: with some of them, some of what it has passes."""
    listed = Expected.load(HERE / "expected.toml")
    if classes == "rq":
        return Expected({}, {}, listed.either)
    return listed if classes == "envq" else Expected(listed.left_out, {}, {**listed.differs, **listed.either})


def _selection(folder: Path, wanted: Sequence[str]) -> list[str]:
    names = wanted or sorted(path.name for path in (folder / "tests").glob("test_*.py"))
    return [f"tests/{name}" for name in names]


def _run(
    folder: Path, arguments: argparse.Namespace, expected: Expected, selection: Sequence[str], processes: int
) -> dict[str, Result]:
    """Each test by its name below RQ's ``tests``; RuntimeError where pytest itself failed."""
    with tempfile.TemporaryDirectory(prefix="envq-compat-") as scratch:
        report = Path(scratch) / "report.json"
        command = [sys.executable, "-m", "pytest", "--quiet", "--quiet", "--tb=no", "--disable-warnings"]
        command += ["-p", "compat.substitute", "-p", "no:cacheprovider", "--rootdir", str(folder)]
        command += ["--timeout", str(HANGS_AFTER_S), "--timeout-method", "thread"]
        command += ["--suite-report", str(report), "--suite-classes", arguments.classes]
        command += ["--suite-server", arguments.server]
        command += [f"--suite-left-out=tests/{pattern}" for pattern in expected.left_out]
        if processes > 1:
            command += ["--numprocesses", str(processes), "--dist", "loadfile"]
        output = Path(scratch) / "output"
        with output.open("wb") as written:
            whole, env = [*command, *selection], _environment(arguments)
            try:
                subprocess.run(
                    whole, cwd=folder, env=env, stdout=written, stderr=written, check=False, timeout=GIVEN_UP_AFTER_S
                )
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"the tests did not end within {GIVEN_UP_AFTER_S} s") from None
        if not report.exists():
            raise RuntimeError(f"pytest did not get to its end:\n{output.read_text(errors='replace')[-3000:]}")
        found = json.loads(report.read_text())
    return {name.removeprefix("tests/"): Result(**test) for name, test in found.items()}


def _environment(arguments: argparse.Namespace) -> dict[str, str]:
    paths = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    if arguments.classes in ("envq", "envq-workers"):
        paths.insert(0, str(HERE / "bin"))
    ours = {"PYTHONPATH": os.pathsep.join([str(HERE / "redirect"), str(HERE.parent)]), "PATH": os.pathsep.join(paths)}
    return clean_environment(ours | ({"RUN_SLOW_TESTS_TOO": "1"} if arguments.slow else {}))


if __name__ == "__main__":
    sys.exit(main())
