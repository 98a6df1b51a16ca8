"""What a dead executor leaves behind, also after it was settled."""

from __future__ import annotations

import pytest
from redis import Redis
from rq import Queue
from rq.job import Dependency, JobStatus
from support.claiming import claim, success

from envq.store.keys import Keys
from envq.workers.supervision import settlement
from envq.workers.supervision.settlement import Settlement, Settlements
from envq.workers.supervision.verdict import Verdict

EXECUTOR = "host.1.1.abc"
NOTHING_RAN = Verdict("", "handback", "")


@pytest.fixture
def keys(namespace: str) -> Keys:
    return Keys(namespace)


def test_a_move_that_the_server_does_after_the_settlement_loses_nothing(
    redis_client: Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It blocks on, for up to two seconds, where the end of the connection is slow to arrive."""
    monkeypatch.setattr(settlement, "LOOK_AGAIN_S", 0.0)
    settlements = Settlements(keys)
    settlements.add(Settlement(EXECUTOR, NOTHING_RAN, "killed", sudden=True))
    settlements.work_off(redis_client)
    queue = Queue("q", connection=redis_client)
    job = queue.enqueue("time.time")
    redis_client.blmove(queue.key, keys.claims(EXECUTOR), 1, "LEFT", "RIGHT")
    assert settlements.due
    settlements.work_off(redis_client)
    assert queue.job_ids == [job.id]
    assert not settlements.due


def test_a_worker_that_ends_before_leaves_it_to_the_others(redis_client: Redis, keys: Keys) -> None:
    settlements = Settlements(keys)
    settlements.add(Settlement(EXECUTOR, NOTHING_RAN, sudden=True))
    settlements.work_off(redis_client)
    assert redis_client.zscore(keys.executors, EXECUTOR) is None
    settlements.hand_over(redis_client)
    assert redis_client.zscore(keys.executors, EXECUTOR)


@pytest.mark.parametrize(
    ("status", "despite_failure", "found"),
    [("queued", True, False), ("failed", False, False), ("failed", True, True), ("finished", False, True)],
)
@pytest.mark.parametrize("registry", ["deferred", "ready"])
def test_dependents_are_looked_for_where_whoever_ended_their_parent_vanished(
    redis_client: Redis, keys: Keys, registry: str, status: str, *, despite_failure: bool, found: bool
) -> None:
    parent = Queue("q", connection=redis_client).enqueue("time.time")
    other = Queue("other", connection=redis_client)
    child = other.enqueue("time.time", depends_on=Dependency(parent, allow_failure=despite_failure))
    # As RQ's code does it, up to the end of its transaction.
    redis_client.hset(parent.key, "status", status)
    if registry == "ready":
        redis_client.rename(other.deferred_job_registry.key, other.ready_job_registry.key)
        child.set_status(JobStatus.READY_TO_ENQUEUE)
    settlements = Settlements(keys)
    settlements.add(Settlement(EXECUTOR, Verdict("?", "crash", "vanished"), "vanished"))
    assert settlements.work_off(redis_client) is found
    assert redis_client.lrange(keys.settle, 0, -1) == [parent.id.encode()] * found
    assert not settlements.due


def test_what_a_dead_executor_had_noted_is_stored_and_only_the_rest_goes_back(redis_client: Redis, keys: Keys) -> None:
    queue = Queue("q", connection=redis_client)
    ids = [queue.enqueue("time.time").id for _ in range(4)]
    done, ran, *_ = claim(redis_client, keys, EXECUTOR, ["q"], wanted=4).jobs
    settlements = Settlements(keys)
    settlements.add(Settlement(EXECUTOR, Verdict(ran.job_id, "crash", "killed"), "killed", ends=(success(done),)))
    settlements.work_off(redis_client)
    assert queue.finished_job_registry.get_job_ids() == ids[:1]
    assert queue.job_ids == ids[1:]
    crashes = [redis_client.hget(f"rq:job:{each}", "envq_crashes") for each in ids]
    assert crashes == [None, b"1", None, None]


def test_an_id_that_is_no_text_holds_up_nothing(redis_client: Redis, keys: Keys) -> None:
    queue = Queue("q", connection=redis_client)
    job = queue.enqueue("time.time")
    redis_client.copy(job.key, b"rq:job:\xff")
    redis_client.rpush(keys.claims(EXECUTOR), b"\xff", job.id)
    settlements = Settlements(keys)
    settlements.add(Settlement(EXECUTOR, NOTHING_RAN, "killed"))
    settlements.work_off(redis_client)
    assert not settlements
    assert redis_client.exists(keys.claims(EXECUTOR)) == 0


def test_an_end_that_no_server_takes_holds_up_nothing(redis_client: Redis, keys: Keys) -> None:
    queue = Queue("q", connection=redis_client)
    ids = [queue.enqueue("time.time").id for _ in range(2)]
    done, _ = claim(redis_client, keys, EXECUTOR, ["q"], wanted=2).jobs
    settlements = Settlements(keys)
    settlements.add(Settlement(EXECUTOR, NOTHING_RAN, "killed", ends=(b"torn", success(done))))
    settlements.work_off(redis_client)
    assert not settlements
    assert queue.finished_job_registry.get_job_ids() == ids[:1]
    assert queue.job_ids == ids[1:]
