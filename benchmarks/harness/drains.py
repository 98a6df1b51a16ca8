"""Jobs lie in a queue, workers start, and the time of every job is read from its mark."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from harness.processes import Failed, Workers
from harness.redis_server import RedisServer
from peers.common import START, Record, count_records, read_records

_STALL_S = 60.0
_POLL_S = 0.02  # one stat(2) each
_OVERLAP = 0.25  # the least share of jobs in the window of several workers for its rate to count


@dataclass
class Drained:
    """
    One drain.

    Args:
        rate: jobs a second between the first mark and the last.
        overlap_rate: the same while all processes were at work; None: there was no such time worth counting.
        redis_us, worker_us: CPU microseconds of the server and of the worker's whole tree for a job.
        commands: what Redis ran for a job, by name.
    """

    jobs: int
    rate: float
    redis_us: float
    worker_us: float
    first_ms: float
    commands: dict[str, float]
    overlap_rate: float | None = None

    @property
    def commands_per_job(self) -> float:
        """Commands inside MULTI and Lua count."""
        return sum(self.commands.values())


def wait_for_records(records: Path, wanted: int, workers: Workers, stall_s: float = _STALL_S) -> int:
    """Until there are so many marks; Failed where none comes any more. Returns how many there are."""
    seen, seen_at = -1, time.monotonic()
    while (count := count_records(records)) < wanted:
        if count != seen:
            seen, seen_at = count, time.monotonic()
        elif time.monotonic() - seen_at > stall_s:
            raise Failed(f"stalled at {count} of {wanted} marks")
        if not workers.alive:
            raise Failed(f"the worker ended at {count} of {wanted} marks:\n{workers.log.read_text()[-600:]}")
        time.sleep(_POLL_S)
    return count


def drain(server: RedisServer, workers: Workers, records: Path, marks: int, processes: int = 1) -> Drained:
    """
    Watch just started workers until there are so many marks; the workers are left running.

    CPU time is taken between the first look that sees a mark and the last one, over the marks made meanwhile.
    """
    begin = wait_for_records(records, 1, workers)
    worker_begin, redis_begin = workers.cpu_s(), server.connection.cpu_s()
    end = wait_for_records(records, marks, workers)
    worker_end, redis_end = workers.cpu_s(), server.connection.cpu_s()
    stats = server.connection.command_stats()
    made = read_records(records)
    jobs = [each for each in made if each.kind != START]
    counted = jobs[: marks * len(jobs) // len(made)]
    per_job = 1e6 * len(made) / len(jobs) / max(1, end - begin)
    return Drained(
        jobs=len(counted),
        rate=_rate([each.at_ns for each in counted]),
        redis_us=(redis_end - redis_begin) * per_job,
        worker_us=(worker_end - worker_begin) * per_job,
        first_ms=(made[0].at_ns - workers.spawned_ns) / 1e6,
        commands={name: each.calls / len(jobs) for name, each in stats.items()},
        overlap_rate=overlap_rate(counted, processes) if processes > 1 else None,
    )


def _rate(times_ns: list[int]) -> float:
    return (len(times_ns) - 1) / ((max(times_ns) - min(times_ns)) / 1e9)


def overlap_rate(jobs: list[Record], processes: int) -> float | None:
    """From the first job of the last process to begin to the last job of the first to end."""
    pids = {each.pid for each in jobs}
    of_process: dict[int, list[int]] = defaultdict(list)
    for each in jobs:  # where each job forks, the parents are the processes that take jobs
        of_process[each.pid if len(pids) <= processes else each.parent].append(each.at_ns)
    if len(of_process) != processes:
        return None
    begin, end = max(map(min, of_process.values())), min(map(max, of_process.values()))
    inside = [each.at_ns for each in jobs if begin <= each.at_ns <= end]
    return _rate(inside) if len(inside) > _OVERLAP * len(jobs) else None
