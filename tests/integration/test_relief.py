"""Relieving an executor in a long job: what ended is stored, what waits goes elsewhere, what runs stays."""

from __future__ import annotations

import math
import multiprocessing
from typing import Any, cast

import pytest
from redis import Redis
from rq import Queue
from support.claiming import claim, success

from envq.store.exchange import Claimed
from envq.store.keys import Keys, worker
from envq.workers.ledger import Ledger
from envq.workers.slot import Phase, Slot
from envq.workers.supervision import relief as relief_module
from envq.workers.supervision.executor_process import ExecutorProcess
from envq.workers.supervision.relief import Relief

EXECUTOR = "host.1.1.abc"


class Busy:
    """An executor that ended the first of its jobs and sits in the second."""

    def __init__(self, client: Redis, keys: Keys) -> None:
        context = multiprocessing.get_context("fork")
        self.name, self.batch_at = EXECUTOR, -math.inf
        self.slot, self.ledger = Slot(context), Ledger(context)
        client.hset(worker(EXECUTOR), "state", "idle")
        self.jobs = claim(client, keys, EXECUTOR, ["q"], wanted=64, trip=1).jobs
        self.ledger.begin(1, len(self.jobs))
        self.run(self.jobs[0])
        self.end(self.jobs[0])
        self.run(self.jobs[1])

    @property
    def view(self) -> Any:
        return self.slot.read()

    def run(self, claimed: Claimed) -> None:
        self.slot.write(Phase.RUNNING, claimed.job_id, claimed.execution_id)

    def end(self, claimed: Claimed) -> None:
        self.ledger.note(success(claimed))
        self.slot.end_job()


@pytest.fixture
def keys(namespace: str) -> Keys:
    return Keys(namespace)


@pytest.fixture
def ids(redis_client: Redis) -> list[str]:
    return [Queue("q", connection=redis_client).enqueue("time.time").id for _ in range(5)]


@pytest.fixture
def executor(redis_client: Redis, keys: Keys, ids: list[str]) -> Busy:
    assert ids
    return Busy(redis_client, keys)


@pytest.fixture
def relief(keys: Keys, executor: Busy, monkeypatch: pytest.MonkeyPatch) -> Relief:
    monkeypatch.setattr(relief_module, "PATIENCE_S", 0.0)
    made = Relief(keys)
    assert not look(made, executor)
    assert look(made, executor)
    return made


def look(relief: Relief, executor: Busy) -> bool:
    return bool(relief.look(cast("list[ExecutorProcess]", [executor])))


def give(relief: Relief, client: Redis, executor: Busy) -> int:
    return relief.give(client, cast(ExecutorProcess, executor))


def claims_of(client: Redis, keys: Keys) -> list[str]:
    return [item.decode() for item in client.lrange(keys.claims(EXECUTOR), 0, -1)]


def test_what_ended_is_stored_what_waits_goes_back_what_runs_stays(
    redis_client: Redis, keys: Keys, relief: Relief, executor: Busy, ids: list[str]
) -> None:
    assert give(relief, redis_client, executor) == 3
    queue = Queue("q", connection=redis_client)
    assert queue.finished_job_registry.get_job_ids() == ids[:1]
    assert queue.job_ids == ids[2:]
    assert claims_of(redis_client, keys) == [ids[1]]
    assert executor.ledger.seized
    assert not any(look(relief, executor) for _ in range(3)), "once is enough"


def test_one_that_went_on_since_it_was_looked_at_keeps_all(
    redis_client: Redis, keys: Keys, relief: Relief, executor: Busy, ids: list[str]
) -> None:
    executor.end(executor.jobs[1])
    executor.run(executor.jobs[2])
    assert give(relief, redis_client, executor) == 0
    assert claims_of(redis_client, keys) == ids
    assert executor.ledger.seized, "it asks before the next, which does no harm"


def test_one_that_has_asked_since_it_was_looked_at_keeps_all_that_waits(
    redis_client: Redis, keys: Keys, relief: Relief, executor: Busy, ids: list[str]
) -> None:
    """Its round trip has reached the server; its own memory does not say so yet."""
    claim(redis_client, keys, EXECUTOR, [], wanted=0, held=ids, trip=2)
    assert give(relief, redis_client, executor) == 0
    assert claims_of(redis_client, keys) == ids[1:]


def test_an_end_with_dependents_waits_for_the_executor(
    redis_client: Redis, keys: Keys, relief: Relief, executor: Busy, ids: list[str]
) -> None:
    Queue("q", connection=redis_client).enqueue("time.time", depends_on=ids[0])
    assert give(relief, redis_client, executor) == 3
    assert claims_of(redis_client, keys) == ids[:2]


def test_a_long_reset_keeps_nothing(
    redis_client: Redis, keys: Keys, relief: Relief, executor: Busy, ids: list[str]
) -> None:
    executor.end(executor.jobs[1])
    executor.slot.write(Phase.RESETTING, "variable", "1")
    assert not look(relief, executor)
    assert look(relief, executor)
    assert give(relief, redis_client, executor) == 3
    assert claims_of(redis_client, keys) == []
    assert Queue("q", connection=redis_client).job_ids == ids[2:]
