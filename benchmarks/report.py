#!/usr/bin/env python3
"""Writes what is in the file of results into docs/performance.md, between the markers there.

python3 benchmarks/report.py [--results FILE] [--page FILE]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import profile_worker
from harness.results import DEFAULT, Goal, Results
from rows.table import ROWS
from sweeps.table import SWEEPS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
_VERDICT = {True: "yes", False: "**no**", None: ""}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=DEFAULT, metavar="FILE")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE")
    options = parser.parse_args()
    results = Results(options.results)
    page = options.page.read_text()
    for marker, text in (
        ("goals", goals_table(results)),
        ("figures", figures(results)),
        ("sweeps", sweeps(results)),
        ("profile", profile(results)),
        ("conditions", conditions(results)),
    ):
        page = between_markers(page, marker, text)
    options.page.write_text(page)
    return 0


def between_markers(page: str, marker: str, text: str) -> str:
    """The page with this text between its two comments; SystemExit where it has none."""
    begin, end = f"<!-- {marker}: written by benchmarks/report.py -->", f"<!-- {marker}: end -->"
    if begin not in page or end not in page:
        raise SystemExit(f"the page has no place for {marker}: {begin} … {end}")
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}"


def goals_table(results: Results) -> str:
    """One line for each figure, the command and the peers beside the first of a row."""
    lines = ["| what | goal | reached | met | envq's figure to the peers' | command |", "|---|--:|--:|---|---|---|"]
    rows = results.section("rows")
    for row in ROWS:
        record = rows.get(row.name)
        if record is None:
            lines.append(f"| **{row.title}** | | not measured | | | `run.py {row.name}` |")
            continue
        for number, goal in enumerate(Goal(**each) for each in record["goals"]):
            first = number == 0
            what = f"**{row.title}**: {goal.what}" if first else goal.what
            peers = ", ".join(f"{name} {number_text(ratio)} ×" for name, ratio in sorted(record["ratios"].items()))
            command = f"`{record['command'].removeprefix('python3 benchmarks/')}`" if first else ""
            lines.append(
                f"| {what} | {bound_text(goal)} | {with_unit(goal.reached, goal.unit)} | {_VERDICT[goal.met]} "
                f"| {peers if first else ''} | {command} |"
            )
    return "\n".join(lines)


def bound_text(goal: Goal) -> str:
    """``≥ 5 ×``; nothing without a goal."""
    return "" if goal.bound is None else f"{'≥' if goal.at_least else '≤'} {with_unit(goal.bound, goal.unit)}"


def with_unit(value: float | None, unit: str) -> str:
    """The figure as a reader wants it."""
    return "not measured" if value is None else f"{number_text(value)} {unit}".strip()


def number_text(value: float) -> str:
    """Three significant digits, thousands with commas."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def figures(results: Results) -> str:
    """All series of all rows; those that are about the same subjects in one table."""
    lines: list[str] = []
    for row in ROWS:
        record = results.section("rows").get(row.name)
        if record is None:
            continue
        for tables in grouped(record["figures"]):
            lines += [f"**{row.title}**", "", *table_of(tables), ""]
        lines += [f"- {name} failed: `{' '.join(why.split())[-200:]}`" for name, why in record["failures"].items()]
    return "\n".join(lines).strip()


def grouped(series: dict[str, dict[str, Any]]) -> list[dict[str, dict[str, Any]]]:
    """Series of rounds that share a subject stay together, any other kind is alone."""
    groups: list[dict[str, dict[str, Any]]] = []
    for title, of_subjects in series.items():
        together = (each for each in groups if _is_rounds(each) and set(of_subjects) & set(next(iter(each.values()))))
        group = next(together, None) if _is_rounds({title: of_subjects}) else None
        if group is None:
            groups.append({title: of_subjects})
        else:
            group[title] = of_subjects
    return [group for group in groups if any(group.values())]


def _is_rounds(group: dict[str, dict[str, Any]]) -> bool:
    return all(isinstance(each, list) for of_subjects in group.values() for each in of_subjects.values())


def table_of(group: dict[str, dict[str, Any]]) -> list[str]:
    """By what the figures are: rounds, percentiles, one figure, or what happened."""
    if _is_rounds(group):
        subjects = dict.fromkeys(name for of_subjects in group.values() for name in of_subjects)
        rows = [[name, *(_rounds(of_subjects.get(name)) for of_subjects in group.values())] for name in subjects]
        return _table(["", *group], rows)
    title, series = next(iter(group.items()))
    if all(isinstance(each, int | float) for each in series.values()):
        return _table(["", title], [[name, number_text(value)] for name, value in series.items()])
    if any("to_result" in each for each in series.values()):
        return _table(
            [title, "samples", "to the job p50 / p99", "to the result p50 / p99"],
            [
                [name, str(each["to_result"]["samples"]), *(_percentiles(each[to]) for to in ("to_start", "to_result"))]
                for name, each in series.items()
            ],
        )
    return _table(
        [f"SIGKILL of {title}", "what happened", "after s", "what the queue said while it ran"],
        [
            [
                name,
                each["outcome"],
                "–" if each["again_s"] is None else number_text(each["again_s"]),
                each["state_running"] or "–",
            ]
            for name, each in series.items()
        ],
    )


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Markdown; all but the first column to the right."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def _rounds(values: list[float] | None) -> str:
    """The median; with several rounds the lowest and the highest behind it."""
    if not values:
        return "–"
    median = number_text(statistics.median(values))
    return median if len(values) == 1 else f"{median} ({number_text(min(values))}–{number_text(max(values))})"


def _percentiles(values: dict[str, float]) -> str:
    return f"{values['p50']:.2f} / {values['p99']:.2f}"


def sweeps(results: Results) -> str:
    """A picture and a table of each."""
    lines: list[str] = []
    for sweep in SWEEPS:
        record = results.section("sweeps").get(sweep.name)
        if record is None:
            continue
        names = [name for name, points in record["points"].items() if points]
        lines += [f"**{sweep.title}**", "", f"![{sweep.title}](plots/{sweep.name}.svg)", ""]
        lines += [f"| {record['x']} | {' | '.join(names)} |", f"|--:|{'--:|' * len(names)}"]
        curves = {name: dict(map(tuple, record["points"][name])) for name in names}
        for x in sorted({x for curve in curves.values() for x in curve}):
            cells = (number_text(curve[x]) if x in curve else "–" for curve in curves.values())
            lines.append(f"| {x:,g} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines).strip()


def profile(results: Results) -> str:
    """Where an executor spends a job; what takes less than a hundredth of it is left out."""
    record = results.section("profiles").get("default")
    if record is None:
        return "Not measured: `profile_worker.py`."
    return profile_worker.table(record, least_us=record["job_us"] / 100)


def conditions(results: Results) -> str:
    """On what the figures depend, once for all records that agree, and which were quick."""
    records = [each for name in ("rows", "sweeps") for each in results.section(name).values()]
    lines: list[str] = []
    for machine in _different([each["machine"] for each in records]):
        lines.append(f"- {machine['cpus']} × {machine['cpu']}, {machine['memory_gib']} GiB, Linux {machine['kernel']}")
    if commits := sorted({each["versions"].get("envq", "unknown") for each in records}):
        lines.append(f"- envq at {', '.join(commits)} (`+`: with changes that are not committed)")
    others = [{name: of for name, of in each["versions"].items() if name != "envq"} for each in records]
    lines += [f"- {', '.join(f'{name} {of}' for name, of in sorted(each.items()))}" for each in _different(others)]
    dates = sorted(each["measured_at"] for each in records)
    if dates:
        calibration = [each["calibration_ms"] for each in records]
        lines.append(
            f"- measured {dates[0][:16]} to {dates[-1][:16]} UTC; a fixed loop of Python took "
            f"{min(calibration):.0f} to {max(calibration):.0f} ms before each"
        )
    if quick := [each["command"] for each in records if each["settings"]["quick"]]:
        lines.append(f"- {len(quick)} of {len(records)} records are of `--quick` runs: one round, fewer jobs")
    return "\n".join(lines) or "Nothing was measured yet."


def _different(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for each in values:
        if each not in found:
            found.append(each)
    return found


if __name__ == "__main__":
    sys.exit(main())
