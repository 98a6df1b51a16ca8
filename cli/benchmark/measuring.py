"""The measurements, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import redis

from envq.cli.benchmark import server_load
from envq.cli.benchmark.figures import Drain, Figures, Latency, Rate
from envq.cli.benchmark.options import Plan
from envq.cli.benchmark.stage import Stage
from envq.cli.render import last_line, plural
from envq.driver.client import Client
from envq.errors import EnvqError, GetTimeout, JobFailed
from envq.jobs.job import Job
from envq.jobs.results import get

PINGS: Final = 50
FIRST_SAMPLES: Final = 10  # not counted: the first jobs import what they need
IDLE_S: Final = 0.005  # between two samples, in which the executor goes back to waiting
LOOK_S: Final = 2.0  # how long to wait before looking whether anybody still works
STALLED_S: Final = 60.0
TAIL: Final = 256  # jobs that may end after the last one, where several executors run


class Measurement:
    """
    One run.

    Args:
        client: the producer's
        control: another way to the server, which no proxy delays
        tell: called with what is about to be measured
    """

    def __init__(
        self, client: Client, control: redis.Redis, stage: Stage, sizes: Plan, tell: Callable[[str], None]
    ) -> None:
        self._client = client
        self._control = control
        self._stage = stage
        self._backlog = stage.backlog
        self._plan = sizes
        self._tell = tell

    def run(self) -> Figures:
        """
        Everything, with the workers starting when it is their turn.

        Raises EnvqError where a job fails or nothing moves any more.
        """
        try:
            return self._run()
        except JobFailed as error:
            raise EnvqError(f"a job of the benchmark failed: {last_line(error.remote_traceback)}") from error

    def _run(self) -> Figures:
        round_trip = self._round_trip()
        self._tell("enqueuing one by one")
        one_by_one = self._backlog.hold_one_by_one(self._plan.one_by_one, self._plan.seconds)
        self._tell("enqueuing in bulk")
        bulk = self._backlog.hold_in_bulk(self._plan.jobs)
        latency: Latency | None = None
        drains: list[Drain] = []
        for executors in self._stage.workers.sizes():
            self._tell(f"waiting for {plural(executors, 'executor')}")
            self._stage.have(executors)
            if latency is None:
                self._tell("latency on an idle worker")
                latency = self._latency()
            self._tell(f"draining with {plural(executors, 'executor')}")
            drains.append(self._drain(executors, latency.p50_ms / 1000))
        assert latency is not None  # there is at least one size
        return Figures(round_trip, one_by_one, bulk, latency, drains)

    def _round_trip(self) -> Latency:
        ping: Any = self._client.connection
        return Latency.of([_timed(ping.ping) for _ in range(PINGS)])

    def _latency(self) -> Latency:
        waits: list[float] = []
        end = 0.0
        for number in range(FIRST_SAMPLES + self._plan.samples):
            if number == FIRST_SAMPLES:
                end = time.perf_counter() + self._plan.seconds
            took = _timed(lambda: self._wait([self._backlog.enqueue()]))
            if number >= FIRST_SAMPLES:
                waits.append(took)
                if time.perf_counter() > end:
                    break
            time.sleep(IDLE_S)
        return Latency.of(waits)

    def _drain(self, executors: int, job_s: float) -> Drain:
        warm_up = self._rate(*self._released(self._plan.warm_up(executors, job_s)))
        count = self._plan.drained(warm_up.jobs_per_s)
        self._backlog.prepare(count)
        before = server_load.before(self._control)
        jobs, began = self._released(count)
        after = server_load.after(self._control)
        return Drain(executors, self._rate(jobs, began), server_load.load(before, after, count))

    def _released(self, count: int) -> tuple[list[Job[Any]], float]:
        """So many jobs that have ended, and when they were released, by the server's clock."""
        self._backlog.prepare(count)
        jobs, began = self._backlog.release(count)
        # Waiting for the last one alone costs the server nothing while it is measured.
        self._wait(jobs[-1:])
        self._wait(jobs[-TAIL:])
        return jobs, began

    def _rate(self, jobs: Sequence[Job[Any]], began: float) -> Rate:
        ends = list(self._backlog.ends(jobs))
        if late := [job for job, end in zip(jobs, ends, strict=True) if end is None]:
            self._wait(late)
            ends = list(self._backlog.ends(jobs))
        return Rate(len(jobs), max(end for end in ends if end is not None) - began)

    def _wait(self, jobs: Sequence[Job[Any]]) -> None:
        """Until they have ended; looks after the workers meanwhile."""
        last_move, left = time.monotonic(), -1
        while True:
            try:
                get(jobs, timeout=LOOK_S)
                return
            except GetTimeout:
                self._stage.workers.check()
            now_left = self._backlog.left()
            if now_left != left:
                last_move, left = time.monotonic(), now_left
            elif time.monotonic() - last_move > STALLED_S:
                raise EnvqError(f"no job has been taken for {STALLED_S:g} s, {plural(left, 'job')} still queued")


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
