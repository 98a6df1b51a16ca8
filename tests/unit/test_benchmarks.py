"""The benchmarks' own arithmetic, and that what they write can be read; nothing is measured here."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

import plot
import profile_worker
import report
from harness.bench import Series
from harness.drains import overlap_rate
from harness.processes import Subject, subject_names
from harness.results import DEFAULT, Goal, Outcome, Results, at_most
from peers.common import NOOP, Record
from rows.table import ROWS
from sweeps.sweep import Curves
from sweeps.table import SWEEPS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "performance.md").read_text()
CONDITIONS = {
    "settings": {"quick": True, "rounds": 1, "scale": 0.3},
    "machine": {"cpu": "a processor", "cpus": 2, "memory_gib": 8, "kernel": "6.1"},
    "versions": {"python": "3.11.7", "rq": "3.0.0"},
    "measured_at": "2026-11-30T20:00:00+00:00",
    "calibration_ms": 80.0,
}


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """One row and one sweep, as a run leaves them."""
    found = Results(tmp_path / "results.json")
    outcome = Outcome(
        goals=[Goal("ratio to the fastest peer", 5.25, 5, "×"), at_most("a second figure", 9.0, 5, "µs")],
        ratios={"rq:simple": 33.333},
        figures={
            "jobs a second": {"envq:default": [20_000.0, 21_000.0, 22_000.0]},
            "Redis CPU µs": {"envq:default": [33.0], "rq:simple": [450.0]},
            "latency ms": {
                "envq:default": {
                    "to_start": {"samples": 100, "p50": 0.4, "p99": 0.9},
                    "to_result": {"samples": 100, "p50": 0.6, "p99": 1.2},
                }
            },
            "killed": {"rq:fork": {"outcome": "not within 75 s", "again_s": None, "state_running": "started"}},
        },
        failures={"huey:thread": "it ended"},
    )
    curves = Curves("bytes", "jobs/s", {"envq:default": [(10, 500.0), (100, 400.0)], "rq:simple": [(10, 90.0)]})
    for section, name, record in (
        ("rows", "throughput", outcome.as_record()),
        ("sweeps", "payload", curves.as_record()),
    ):
        found.put(section, name, CONDITIONS | {"title": name, "command": "python3 benchmarks/run.py x"} | record)
    return Results(tmp_path / "results.json")


def test_a_goal_is_met_at_its_bound_and_missed_where_nothing_was_measured() -> None:
    assert [Goal("", each, 5).met for each in (4.9, 5, None)] == [False, True, False]
    assert [at_most("", each, 5).met for each in (4.9, 5, 5.1)] == [True, True, False]
    assert Goal("", 4).met is None


def test_the_table_shows_goals_what_was_reached_and_the_peers(results: Results) -> None:
    table = report.goals_table(results)
    assert "ratio to the fastest peer | ≥ 5 × | 5.25 × | yes | rq:simple 33.3 × | `run.py x` |" in table
    assert "| a second figure | ≤ 5 µs | 9 µs | **no** | |  |" in table.replace("|  |  |", "| |  |")
    assert table.count("not measured") == len(ROWS) - 1


def test_the_page_is_written_between_its_markers_and_the_second_time_alike(results: Results) -> None:
    page = report.between_markers(PAGE, "goals", report.goals_table(results))
    page = report.between_markers(page, "figures", report.figures(results))
    page = report.between_markers(page, "sweeps", report.sweeps(results))
    page = report.between_markers(page, "profile", report.profile(results))
    page = report.between_markers(page, "conditions", report.conditions(results))
    assert "| envq:default | 21,000 (20,000–22,000) | 33 |" in page
    assert "| envq:default | 100 | 0.40 / 0.90 | 0.60 / 1.20 |" in page
    assert "| rq:simple | – | 450 |" in page
    assert "| rq:fork | not within 75 s | – | started |" in page
    assert "| 100 | 400 | – |" in page
    assert "2 of 2 records are of `--quick` runs" in page
    assert report.between_markers(page, "goals", report.goals_table(results)) == page


def test_the_committed_results_can_be_rendered() -> None:
    found = Results(DEFAULT)
    texts = (report.goals_table(found), report.figures(found), report.sweeps(found), report.conditions(found))
    assert all(texts)
    assert not re.search(r"/(tmp|work|home|root)/", json.dumps(texts))


def test_results_are_merged_by_name(results: Results) -> None:
    results.put("rows", "latency", {"settings": CONDITIONS["settings"]})
    assert set(results.section("rows")) == {"throughput", "latency"}
    assert results.has("rows", "latency", {"quick": True, "rounds": 1, "scale": 0.3})
    assert not results.has("rows", "latency", {"quick": False, "rounds": 3, "scale": 1.0})


def test_points_are_printed_as_csv(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["plot.py", "--csv", "--results", str(tmp_path / "results.json")])
    assert plot.main() == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["sweep,curve,x,y", "payload,envq:default,10,500.0"]


def test_ratios_are_of_medians() -> None:
    series = Series()
    for name, values in {"envq:default": [10.0, 30.0, 20.0], "rq:simple": [4.0], "saq:fast": [5.0]}.items():
        for value in values:
            series.add(name, value)
    assert series.ratios("envq:default") == {"rq:simple": 5.0, "saq:fast": 4.0}
    assert series.best(["rq:simple", "saq:fast", "arq:fast"]) == 5.0
    assert series.ratio("envq:default", "arq:fast") is None


def test_of_two_processes_only_the_time_counts_in_which_both_were_at_work() -> None:
    second = 10**9
    early = [Record(1, NOOP, i, 0, i * second) for i in range(10)]
    late = [Record(2, NOOP, i, 0, (i + 5) * second) for i in range(10)]
    assert overlap_rate([*early, *late], 2) == pytest.approx(9 / 4)  # pyright: ignore[reportUnknownMemberType]
    assert overlap_rate(early, 2) is None


def test_samples_belong_to_the_innermost_module_of_envq() -> None:
    inside = "claim (/x/site-packages/envq/workers/execution/claims.py:7)"
    stack = [inside, "execute_command (/x/site-packages/redis/client.py:9)"]
    assert profile_worker.owner(stack) == "envq/workers/execution/claims.py"
    assert profile_worker.owner([*stack, "noop (/x/peers/common.py:3)"]) == profile_worker.JOB
    assert profile_worker.owner(["main (/x/envq/lib/run.py:1)"]) == profile_worker.OUTSIDE
    assert profile_worker.by_module(Counter({";".join(stack): 3})) == {
        "envq/workers/execution/claims.py": Counter(python=3)
    }


@pytest.mark.parametrize("name", subject_names())
def test_every_configuration_says_how_its_workers_are_started(name: str) -> None:
    subject = Subject.of(name, "redis://localhost:1/0")
    assert subject.peer.config["label"]
    commands = subject.peer.worker_commands("/bin", 2)
    assert all(argv[0].startswith("/bin/") for argv, _ in commands)


def test_the_readme_of_the_benchmarks_names_every_row_and_sweep() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text()
    assert re.findall(r"^\| `([a-z]+)` \|", text, re.MULTILINE) == [row.name for row in ROWS]
    assert all(f"`{sweep.name}`" in text for sweep in SWEEPS)
    names = [each.name for each in (*ROWS, *SWEEPS)]
    assert len(names) == len(set(names))
