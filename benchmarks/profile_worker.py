#!/usr/bin/env python3
"""Where one executor spends a job, in microseconds: by module of envq and by command of Redis.

    PEERS_VENVS=FOLDER python3 benchmarks/profile_worker.py [--config quiet] [--seconds 5]

py-spy samples the executor from outside, working or waiting. A sample belongs to the innermost frame of envq on
its stack, with all that this frame has called: redis-py, RQ, the standard library. Samples that wait for the socket
or write to it are told apart.
"""

from __future__ import annotations

import argparse
import linecache
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from harness.bench import Bench
from harness.drains import wait_for_records
from harness.processes import child_env, venv_bin
from harness.redis_server import RedisServer
from harness.results import DEFAULT, Results, rounded
from peers.common import count_records, read_records

_RATE_HZ = 250
_READS = re.compile(r"\.(recv|recv_into|readinto|poll|select)\(|\bselect\(")
_WRITES = re.compile(r"\.(send|sendall|sendmsg)\(")
_FRAME = re.compile(r"\((?P<file>[^()]+):(?P<line>\d+)\)$")
JOB, OUTSIDE = "the job itself", "outside of envq"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="default", help="of the peer envq")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=DEFAULT, metavar="FILE")
    options = parser.parse_args()
    with Bench(quick=False) as bench, RedisServer() as server:
        record = profile(bench, server, f"envq:{options.config}", options.seconds)
    Results(options.results).put("profiles", options.config, rounded(record))
    print(table(record))
    return 0


def profile(bench: Bench, server: RedisServer, name: str, seconds: int) -> dict[str, Any]:
    """Drain a backlog that is long enough; first undisturbed, then with samples taken, which slow it down."""
    jobs = bench.jobs(server, name, seconds * 3) + 2000
    server.empty()
    records = bench.records()
    bench.produce(server, name, "bulk", records, n=jobs)
    with bench.workers(server, name, records) as workers:
        wait_for_records(records, min(500, jobs // 4), workers)
        executor = read_records(records)[-1].pid
        server.connection("CONFIG", "RESETSTAT")
        cpu, begin = server.connection.cpu_s(), count_records(records)
        time.sleep(seconds)
        cpu, end = server.connection.cpu_s() - cpu, count_records(records)
        stats = server.connection.command_stats()
        stacks = sample(executor, seconds, records.with_suffix(".stacks"))
        if count_records(records) >= jobs:
            raise SystemExit("the backlog was too short: some samples are of an idle executor")
    times, done = [each.at_ns for each in read_records(records)[begin:end]], end - begin
    job_us = (times[-1] - times[0]) / 1e3 / (done - 1)
    return {
        "job_us": job_us,
        "redis_us": cpu * 1e6 / done,
        "modules": {module: _shares(counts, stacks, job_us) for module, counts in by_module(stacks).items()},
        "commands": {command: {"calls": each.calls / done, "us": each.usec / done} for command, each in stats.items()},
    }


def sample(pid: int, seconds: int, file: Path) -> Counter[str]:
    """Stacks, outermost frame first with ``;`` between frames, and how often each was seen."""
    command = [venv_bin("envq") / "py-spy", "record", "--idle", "--full-filenames", "--format", "raw", "--output", file]
    subprocess.run(
        [*command, "--pid", str(pid), "--duration", str(seconds), "--rate", str(_RATE_HZ)],
        env=child_env({}),
        check=True,
        capture_output=True,
    )
    stacks: Counter[str] = Counter()
    for line in file.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        stacks[stack] += int(count)
    return stacks


def by_module(stacks: Counter[str]) -> dict[str, Counter[str]]:
    """Samples of each module: ``python``, ``read`` and ``write``."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for stack, count in stacks.items():
        frames = stack.split(";")
        found[owner(frames)][activity(frames)] += count
    return found


def owner(frames: list[str]) -> str:
    """The innermost module of envq, or that of the job."""
    for frame in reversed(frames):
        file, _ = place(frame)
        if file.endswith("peers/common.py"):
            return JOB
        if found := re.search(r"site-packages/(envq/.*\.py)$", file):
            return found[1]
    return OUTSIDE


def activity(frames: list[str]) -> str:
    """By the line that was being executed: reading from a socket, writing to one, or anything else."""
    line = linecache.getline(*place(frames[-1]))
    if _READS.search(line):
        return "read"
    return "write" if _WRITES.search(line) else "python"


def place(frame: str) -> tuple[str, int]:
    """File and line."""
    match = _FRAME.search(frame)
    return (match["file"], int(match["line"])) if match else ("", 0)


def _shares(counts: Counter[str], stacks: Counter[str], job_us: float) -> dict[str, float]:
    per_sample = job_us / stacks.total()
    return {activity: counts[activity] * per_sample for activity in ("python", "write", "read")}


def table(record: dict[str, Any], least_us: float = 0.0) -> str:
    """Both parts as Markdown, the largest first, without what takes less than that."""
    lines = [
        f"{record['job_us']:.1f} µs a job in the executor, {record['redis_us']:.1f} µs of CPU in Redis.",
        "",
        "| module | Python µs | writing µs | waiting for Redis µs |",
        "|---|--:|--:|--:|",
    ]
    for module, us in sorted(record["modules"].items(), key=lambda item: -sum(item[1].values())):
        if sum(us.values()) >= least_us:
            lines.append(f"| `{module}` | {us['python']:.1f} | {us['write']:.1f} | {us['read']:.1f} |")
    lines += ["", "| command | calls a job | µs a job |", "|---|--:|--:|"]
    for command, each in sorted(record["commands"].items(), key=lambda item: -item[1]["us"]):
        if each["us"] >= least_us / 5:
            name = command.replace("|", " ").upper()
            lines.append(f"| `{name}` | {each['calls']:.2f} | {each['us']:.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
