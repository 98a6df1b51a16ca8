"""The list of RQ's tests that do not pass with envq's classes, and how a run is compared with it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from compat.source import RELEASE
from compat.verdict import Expected, Result, judge, table

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests" / "compat" / "expected.toml"
ENTRIES = [(kind, entry) for kind, entries in tomllib.loads(LIST.read_text()).items() for entry in entries]
TEST = re.compile(r"test_\w+\.py::\w+::test_\w+")
PATTERN = re.compile(r"test_\w+\.py::(\w+::)?\*")
LONGEST_REASON = 150


def expected(
    *,
    left_out: dict[str, str] | None = None,
    differs: dict[str, str] | None = None,
    either: dict[str, str] | None = None,
) -> Expected:
    return Expected(left_out or {}, differs or {}, either or {})


@pytest.mark.parametrize(("kind", "entry"), ENTRIES, ids=[entry["reason"] for _, entry in ENTRIES])
def test_each_entry_names_tests_and_gives_one_short_reason(kind: str, entry: dict[str, object]) -> None:
    assert kind in ("left_out", "differs", "either")
    assert set(entry) == {"reason", "tests"}
    reason, tests = entry["reason"], entry["tests"]
    assert isinstance(reason, str)
    assert re.fullmatch(rf".{{20,{LONGEST_REASON}}}\.", reason)
    assert isinstance(tests, list)
    assert tests
    assert tests == sorted(tests)
    assert all(re.fullmatch(PATTERN if kind == "left_out" else TEST, test) for test in tests)


def test_no_test_is_listed_twice_or_listed_and_left_out() -> None:
    listed = Expected.load(LIST)
    assert not [test for test in {**listed.differs, **listed.either} if listed.is_left_out(test)]
    assert not set(listed.differs) & set(listed.either)


def test_a_second_entry_for_a_test_is_refused(tmp_path: Path) -> None:
    twice = tmp_path / "expected.toml"
    twice.write_text('[[differs]]\ntests = ["a", "b"]\nreason = "one"\n[[differs]]\ntests = ["b"]\nreason = "two"\n')
    with pytest.raises(ValueError, match="b is listed twice"):
        Expected.load(twice)


def test_the_list_is_about_the_release_it_names() -> None:
    assert f"RQ {RELEASE} " in LIST.read_text().partition("\n")[0]


@pytest.mark.parametrize(
    ("test", "column"),
    [
        (Result("passed", part="worker"), "worker"),
        (Result("passed", part="client"), "client"),
        (Result("passed"), "not applicable"),
        (Result("skipped"), "skipped"),
        (Result("failed", "it broke"), "UNEXPECTED"),
    ],
)
def test_a_test_that_is_not_listed_counts_by_what_of_envq_took_part(test: Result, column: str) -> None:
    verdict = judge({"test_a.py::A::test_a": test}, expected(), complete=True)
    assert verdict.counts == {"test_a.py": {column: 1}}
    assert verdict.surprises == ({"test_a.py::A::test_a": "it broke"} if column == "UNEXPECTED" else {})


def test_a_listed_test_must_fail() -> None:
    listed = expected(differs={"a.py::A::a": "because", "a.py::A::b": "because"})
    verdict = judge({"a.py::A::a": Result("failed"), "a.py::A::b": Result("passed")}, listed, complete=True)
    assert verdict.counts == {"a.py": {"differs": 1, "UNEXPECTED": 1}}
    assert verdict.surprises == {"a.py::A::b": "is listed as different, and passes"}


def test_a_listed_test_that_is_gone_is_noticed_in_a_complete_run_only() -> None:
    listed = expected(differs={"a.py::A::a": "because"}, either={"a.py::A::b": "because"})
    assert set(judge({}, listed, complete=True).surprises) == {"a.py::A::a", "a.py::A::b"}
    assert not judge({}, listed, complete=False).surprises


@pytest.mark.parametrize(("outcome", "column"), [("passed", "worker"), ("failed", "differs")])
def test_what_depends_on_the_load_may_pass_or_fail(outcome: str, column: str) -> None:
    test = Result("failed") if outcome == "failed" else Result("passed", part="worker")
    verdict = judge({"a.py::A::a": test}, expected(either={"a.py::A::a": "because"}), complete=True)
    assert verdict.counts == {"a.py": {column: 1}}
    assert not verdict.surprises


def test_what_is_left_out_is_not_applicable() -> None:
    verdict = judge({"a.py::A::a": Result("skipped")}, expected(left_out={"a.py::*": "because"}), complete=True)
    assert verdict.counts == {"a.py": {"not applicable": 1}}


def test_the_table_has_a_line_for_each_file_and_one_for_all() -> None:
    verdict = judge({"b.py::B::b": Result("passed"), "a.py::A::a": Result("failed")}, expected(), complete=True)
    assert [line.split()[0] for line in table(verdict)] == ["worker", "a.py", "b.py", "all"]
