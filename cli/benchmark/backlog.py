"""Jobs that lie ready where no worker looks, and are put on the queue all at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import redis

from envq.cli.benchmark.figures import Rate
from envq.driver.client import Client
from envq.jobs.job import Job
from envq.jobs.outcome import read
from envq.jobs.queue import Queue
from envq.store import keys as rq

CHUNK: Final = 500
SENT_BYTES: Final = 32 * 1024 * 1024  # of payloads in one call; a server refuses a request of a gigabyte
RESULT_TTL_S: Final = 24 * 3600  # none may expire before the last one is looked at


@dataclass(frozen=True)
class Work:
    """What each job calls."""

    function: Callable[..., None]
    own_arguments: tuple[Any, ...]
    payload: tuple[bytes, ...]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """All of them, as they are sent."""
        return (*self.own_arguments, *self.payload)


class HeldQueue(Queue):
    """A queue whose jobs are written as always, but listed under another key, for which no worker waits."""

    def __init__(self, name: str, held_key: str, client: Client) -> None:
        super().__init__(name, client=client)
        self._held_key = held_key

    @property
    def _key(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._held_key

    @_key.setter
    def _key(self, key: object) -> None: ...


class Backlog:
    """
    The jobs of one run.

    Args:
        client: the way of the producer that is measured
        control: the way of the measurement itself, to the server without a detour
        queue: the name of the queue that the workers listen on
        held: the name of one that nobody listens on
    """

    def __init__(self, client: Client, control: redis.Redis, queue: str, held: str, work: Work) -> None:
        self.queue_key = rq.queue(client.keys.queue_name(queue))
        self.held_key = rq.queue(client.keys.queue_name(held))
        self.jobs: list[Job[Any]] = []  # every job that this run has made
        self._control = control
        self._direct = Queue(queue, client=client)
        self._held = HeldQueue(queue, self.held_key, client)
        self._work = work
        self._holding: list[Job[Any]] = []

    def enqueue(self) -> Job[Any]:
        """One job, at once for the workers."""
        job = self._enqueue(self._direct)
        self.jobs.append(job)
        return job

    def hold_one_by_one(self, count: int, seconds: float) -> Rate:
        """As a web application enqueues; fewer where so many would take longer."""
        began = time.perf_counter()
        made = 0
        while made < count and time.perf_counter() - began < seconds:
            self._remember([self._enqueue(self._held)])
            made += 1
        return Rate(made, time.perf_counter() - began)

    def hold_in_bulk(self, count: int) -> Rate:
        """Hundreds a round trip."""
        began = time.perf_counter()
        work = self._work
        for at_once in _parts(count, max(1, SENT_BYTES // max(1, sum(map(len, work.payload))))):
            calls = [work.arguments] * at_once
            self._remember(self._held.enqueue_calls(work.function, calls, result_ttl=RESULT_TTL_S))
        return Rate(count, time.perf_counter() - began)

    def prepare(self, count: int) -> None:
        """Have at least so many lying ready."""
        if (missing := count - len(self._holding)) > 0:
            self.hold_in_bulk(missing)

    def release(self, count: int) -> tuple[list[Job[Any]], float]:
        """Give so many that lie ready to the workers, in one transaction; they, and the server's time at its begin."""
        jobs, self._holding = self._holding[:count], self._holding[count:]
        with self._control.pipeline(transaction=True) as pipeline:
            cast(Any, pipeline).time()
            pipeline.ltrim(self.held_key, len(jobs), -1)
            for chunk in chunks(jobs):
                pipeline.rpush(self.queue_key, *(job.id for job in chunk))
            seconds, microseconds = cast(list[tuple[int, int]], pipeline.execute())[0]
        return jobs, seconds + microseconds / 1e6

    def left(self) -> int:
        """How many wait for a worker."""
        return self._control.llen(self.queue_key)

    def ends(self, jobs: Sequence[Job[Any]]) -> Iterator[float | None]:
        """
        When each has ended, by the server's clock; None for one that has not.

        Raises what became of a job that failed.
        """
        for chunk in chunks(jobs):
            with self._control.pipeline(transaction=False) as pipeline:
                for job in chunk:
                    cast(Any, pipeline).xrevrange(rq.results(job.id), count=1)
                entries = cast(list[list[tuple[bytes, dict[bytes, bytes]]]], pipeline.execute())
            for job, found in zip(chunk, entries, strict=True):
                yield _end(job, found)

    def _enqueue(self, queue: Queue) -> Job[Any]:
        return queue.enqueue_call(self._work.function, self._work.arguments, result_ttl=RESULT_TTL_S)

    def _remember(self, jobs: Sequence[Job[Any]]) -> None:
        self.jobs += jobs
        self._holding += jobs


def chunks(jobs: Sequence[Job[Any]]) -> Iterator[Sequence[Job[Any]]]:
    """Parts for one round trip each."""
    for start in range(0, len(jobs), CHUNK):
        yield jobs[start : start + CHUNK]


def _parts(count: int, largest: int) -> Iterator[int]:
    while count > 0:
        yield min(count, largest)
        count -= largest


def _end(job: Job[Any], found: list[tuple[bytes, dict[bytes, bytes]]]) -> float | None:
    if not found:
        return None
    position, fields = found[0]
    outcome = read(fields, job.serializer, job.id, job.description or "")
    if outcome is None:
        return None
    outcome.unwrap()
    return int(position.partition(b"-")[0]) / 1000
