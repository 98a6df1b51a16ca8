#!/usr/bin/env python3
"""Draws the sweeps of the file of results as SVG; needs the extra ``bench``. With --csv it prints them instead.

python benchmarks/plot.py [--results FILE] [--folder FOLDER] [--csv]
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path
from typing import Any

from harness.results import DEFAULT, Results
from report import PAGE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=DEFAULT, metavar="FILE")
    parser.add_argument("--folder", type=Path, default=PAGE.parent / "plots", metavar="FOLDER")
    parser.add_argument("--csv", action="store_true", help="print sweep, curve, x and y instead; needs no package")
    options = parser.parse_args()
    sweeps = Results(options.results).section("sweeps")
    if options.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(["sweep", "curve", "x", "y"])
        for name, record in sweeps.items():
            writer.writerows([name, curve, *point] for curve, points in record["points"].items() for point in points)
        return 0
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, record in sweeps.items():
        draw(record, options.folder / f"{name}.svg")
    return 0


def draw(record: dict[str, Any], file: Path) -> None:
    """One picture; the same figures give the same bytes."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra, which printing as CSV does without
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "envq", "font.size": 9}):
        figure = Figure(figsize=(5.6, 3.2), layout="constrained")
        axes = figure.add_subplot()
        for curve, points in record["points"].items():
            axes.plot([x for x, _ in points], [y for _, y in points], marker="o", markersize=3, label=curve)
        if record["x_log"]:
            axes.set_xscale("log")
        axes.set_xlabel(record["x"])
        axes.set_ylabel(record["y"])
        axes.set_ylim(bottom=0)
        axes.set_title(record["title"], fontsize=9)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    sys.exit(main())
