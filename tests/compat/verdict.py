"""What became of RQ's tests, against what is expected of them; pure."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

Part = Literal["worker", "client", ""]
COLUMNS = ("worker", "client", "not applicable", "differs", "skipped", "UNEXPECTED")


@dataclass(frozen=True)
class Result:
    """One test of RQ's; ``part`` says whether envq's worker, at least its queue and job, or nothing of it took part."""

    outcome: Literal["passed", "failed", "skipped"]
    error: str = ""
    part: Part = ""


@dataclass(frozen=True)
class Expected:
    """The list: test to reason; those left out by pattern; those under ``either`` may fail or pass."""

    left_out: Mapping[str, str]
    differs: Mapping[str, str]
    either: Mapping[str, str]

    @classmethod
    def load(cls, path: Path) -> Expected:
        """Raises ValueError for a test that is listed twice."""
        entries = tomllib.loads(path.read_text("utf-8"))
        return cls(**{name: _by_test(entries.pop(name, [])) for name in ("left_out", "differs", "either")}, **entries)

    def is_left_out(self, test: str) -> bool:
        return any(fnmatchcase(test, pattern) for pattern in self.left_out)

    def may_fail(self, test: str) -> bool:
        return test in self.differs or test in self.either


@dataclass
class Verdict:
    """Counts by file, and what was not expected."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    surprises: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> Counter[str]:
        return sum(self.counts.values(), Counter())


def judge(tests: Mapping[str, Result], expected: Expected, *, complete: bool) -> Verdict:
    """
    Compare.

    Args:
        complete: all tests ran, so that one that is listed and was not seen is a surprise
    """
    verdict = Verdict()
    for name, test in tests.items():
        column = _column(name, test, expected)
        verdict.counts.setdefault(name.partition("::")[0], Counter())[column] += 1
        if column == "UNEXPECTED":
            listed = name in expected.differs
            verdict.surprises[name] = "is listed as different, and passes" if listed else test.error
    if complete:
        for name in {*expected.differs, *expected.either} - tests.keys():
            verdict.surprises[name] = "is listed, and there is no such test"
    return verdict


def table(verdict: Verdict) -> Iterable[str]:
    """A line for each file and one for all."""
    yield "  ".join([f"{'':38}", *(f"{column:>{len(column)}}" for column in COLUMNS)])
    for file, counts in [*sorted(verdict.counts.items()), ("all", verdict.total)]:
        yield "  ".join([f"{file:38}", *(f"{counts[column] or '':>{len(column)}}" for column in COLUMNS)])


def _column(name: str, test: Result, expected: Expected) -> str:
    if expected.is_left_out(name):
        return "not applicable"
    if test.outcome == "skipped":
        return "skipped"
    if name not in expected.either and (test.outcome == "failed") != (name in expected.differs):
        return "UNEXPECTED"
    if test.outcome == "failed":
        return "differs"
    return test.part or "not applicable"


def _by_test(entries: list[dict[str, object]]) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for entry in entries:
        for test in entry["tests"]:  # type: ignore[attr-defined]
            if test in reasons:
                raise ValueError(f"{test} is listed twice")
            reasons[test] = str(entry["reason"])
    return reasons
