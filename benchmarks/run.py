#!/usr/bin/env python3
"""Measures rows of the table and sweeps by name, all without one; results are merged into one file.

PEERS_VENVS=FOLDER python3 benchmarks/run.py [NAME ...] [--quick] [--missing]
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from harness.bench import Bench
from harness.machine import calibration_ms, machine, versions
from harness.processes import Failed
from harness.results import DEFAULT, Outcome, Results, rounded
from rows.table import ROWS
from sweeps.sweep import Curves
from sweeps.table import SWEEPS


class Measurement(NamedTuple):
    """One row or one sweep."""

    section: str
    name: str
    title: str
    measure: Callable[[Bench], Outcome | Curves]


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leave all blocks: they end servers and workers
    results = Results(options.results)
    ended = 0
    with Bench(quick=options.quick) as bench:
        for each in _chosen(options.names):
            if not (options.missing and results.has(each.section, each.name, bench.settings)):
                ended |= _one(bench, results, each)
    return ended


def _options() -> argparse.Namespace:
    rows = "\n".join(f"  {each.name:12} {each.title}" for each in (*ROWS, *SWEEPS))
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"names:\n{rows}\n  rows, sweeps all of a kind",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="one round, fewer jobs: a look, not a result")
    parser.add_argument("--missing", action="store_true", help="only what the file does not have with these settings")
    parser.add_argument("--results", type=Path, default=DEFAULT, metavar="FILE", help="default: %(default)s")
    return parser.parse_args()


def _chosen(names: list[str]) -> list[Measurement]:
    every = [Measurement("rows", each.name, each.title, each.measure) for each in ROWS]
    every += [Measurement("sweeps", each.name, each.title, each.measure) for each in SWEEPS]
    unknown = set(names) - {each.name for each in every} - {"rows", "sweeps"}
    if unknown:
        raise SystemExit(f"no such measurement: {', '.join(sorted(unknown))}; --help lists them")
    return [each for each in every if not names or each.section in names or each.name in names]


def _one(bench: Bench, results: Results, measurement: Measurement) -> int:
    """Measure and store; 1 where it could not be measured."""
    section, name, title, measure = measurement
    bench.say(f"--- {name}: {title}")
    begin = time.monotonic()
    record: dict[str, Any] = {
        "title": title,
        "settings": bench.settings,
        "command": f"python3 benchmarks/run.py {name}" + (" --quick" if bench.quick else ""),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "calibration_ms": rounded(calibration_ms()),
    }
    bench.failures = {}
    try:
        outcome = measure(bench)
    except Failed as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    outcome.failures = bench.failures
    results.put(section, name, record | outcome.as_record() | {"took_s": round(time.monotonic() - begin, 1)})
    if isinstance(outcome, Outcome):
        for goal in outcome.goals:
            mark = {True: "met", False: "MISSED", None: ""}[goal.met]
            print(f"{name}: {goal.what}: {goal.reached} {goal.unit} {mark}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
