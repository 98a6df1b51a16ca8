"""What must be true of every job when a storm is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import redis
from chaos.storm import dust, work
from chaos.storm.declaring import Declaring
from chaos.storm.driver import Enqueued
from chaos.storm.ledger import Effects

import envq

GET_WITHIN_S: Final = 120.0
READS: Final = {"read": ("steady", "chained"), "custom": ("custom",), "shaky": ("shaky",)}
ONCE: Final = frozenset({"once", "fail-once"})
DEATHS_ALLOWED: Final = 3
_SUCCESS, _FAILURE = b"1", b"2"


class Verdict:
    """The faults found, and the figures."""

    def __init__(self, done: dict[int, Enqueued], effects: Effects, declaring: Declaring, client: redis.Redis) -> None:
        self.faults: list[str] = []
        self.counted: Counter[str] = Counter()
        self._done, self._effects, self._latest, self._client = done, effects, declaring.latest, client
        self.counted["dirty reads"] = len(effects.dirty)
        self.faults += [f"dirty read: {line}" for line in effects.dirty]
        jobs = [*done.values()]
        results = _results(client, jobs)
        for job, got, stored in zip(jobs, results, _stored(client, jobs), strict=True):
            for fault in (*self._of_job(job, got), *self._of_record(job, got, stored)):
                self.faults.append(self._told(job, fault, got))

    def _told(self, job: Enqueued, fault: str, got: Any) -> str:
        order, runs = job.order, self._effects.pids[job.effect]
        return (
            f"{order.kind} job {job.job_id} (effect {job.effect}, ran in {runs}, got {got!r:.300}) {fault}: "
            f"{dust.story(self._client, job.job_id)}"
        )

    def _of_job(self, job: Enqueued, got: Any) -> Iterator[str]:
        kind, ran = job.kind, self._effects.begun[job.effect]
        lost = isinstance(got, envq.WorkerLost)
        self.counted["effects"] += ran
        self.counted["doubled effects"] += max(0, ran - _runs(job))
        if kind in ONCE:
            self.counted["on_crash=fail jobs"] += 1
            self.counted["on_crash=fail jobs that failed with WorkerLost"] += lost
            if ran > 1:
                self.counted["on_crash=fail jobs that ran twice"] += 1
                yield f"must not run twice, and ran {ran} times"
        if lost:
            yield from self._of_lost(job, ran)
            return
        if kind == "shaky" and isinstance(got, envq.JobFailed) and _is_unbuilt(got):
            self.counted["reads of a variable that could not be built"] += 1
            return
        if ran < 1:
            yield "has no effect"
        yield from self._of_result(job, got)
        yield from self._of_relations(job)

    def _of_lost(self, job: Enqueued, ran: int) -> Iterator[str]:
        self.counted["WorkerLost"] += 1
        if job.kind not in ONCE and ran <= DEATHS_ALLOWED:
            yield f"was given up after {ran} runs"

    def _of_result(self, job: Enqueued, got: Any) -> Iterator[str]:
        if error := work.ERRORS.get(job.kind):
            if not isinstance(got, envq.JobFailed) or error not in str(got):
                yield "must fail with its own error"
            return
        if job.kind not in READS:
            if got != job.expected:
                yield f"must return {job.expected!r:.200}"
            return
        if not isinstance(got, tuple) or got[0] != job.expected:
            yield f"must return {job.expected!r:.200} and labels"
            return
        for name, label in zip(READS[job.kind], got[1:], strict=False):
            if label > self._latest[name]:
                yield f"saw version {label} of {name}, which was never declared"
            elif label < job.labels[name] and name != "shaky":
                yield f"saw version {label} of {name}, and was enqueued when {job.labels[name]} was declared"

    def _of_relations(self, job: Enqueued) -> Iterator[str]:
        kind, order = job.order.kind, job.order
        if kind == "told" and not self._effects.told[job.job_id, "success"]:
            yield "has a callback that did not run"
        if kind == "fail-told" and not self._effects.told[job.job_id, "failure"]:
            yield "has a callback that did not run"
        if order.parent is not None:
            parent = self._done[order.parent]
            ends = self._effects.first_ended if kind == "child" else self._effects.first_begun
            ended = ends.get(parent.effect)
            begun = self._effects.first_begun.get(job.effect)
            if ended is None or (begun is not None and ended > begun):
                yield "began before its parent had ended"

    def _of_record(self, job: Enqueued, got: Any, stored: Sequence[Any]) -> Iterator[str]:
        types = [fields.get(b"type") for _, fields in stored]
        successes, failures = types.count(_SUCCESS), types.count(_FAILURE)
        self.counted["results stored"] += successes + failures
        if successes + failures != 1:
            yield f"has {successes} successes and {failures} failures in its record"


def _runs(job: Enqueued) -> int:
    return 3 if job.kind in ("retry", "again") else 1


def _is_unbuilt(error: envq.JobFailed) -> bool:
    return "EnvironmentVariableFailed" in str(error) or "NotDeclared" in str(error)


def _results(client: redis.Redis, jobs: Sequence[Enqueued]) -> list[Any]:
    """By the API; None of a job that has not ended."""
    found = dust.statuses(client, [job.job_id for job in jobs])
    ended = [job.job_id for job, status in zip(jobs, found, strict=True) if status in dust.ENDED]
    results = dict(zip(ended, envq.get(ended, timeout=GET_WITHIN_S, return_exceptions=True), strict=True))
    return [results.get(job.job_id) for job in jobs]


def _stored(client: redis.Redis, jobs: Sequence[Enqueued]) -> list[Any]:
    found: list[Any] = []
    for at in range(0, len(jobs), 500):
        with client.pipeline(transaction=False) as pipeline:
            for job in jobs[at : at + 500]:
                pipeline.xrange(f"rq:results:{job.job_id}")
            found += pipeline.execute()
    return found
