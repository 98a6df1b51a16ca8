"""Claims: nothing that was taken from a queue is ever without a place, and only its holder ends it."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import pytest
from redis import Redis
from rq import Queue
from support import claiming

from envq.store import scripts
from envq.store.keys import Keys, job
from envq.workers.execution.claims import Claims
from envq.workers.execution.fence import ClaimLost, Fence, FencedRedis, JobDeleted

EXECUTOR = "host.1.1.abc"


@pytest.fixture
def keys(namespace: str) -> Keys:
    return Keys(namespace)


def enqueue(client: Redis, queue: str = "q", **options: Any) -> str:
    return Queue(queue, connection=client).enqueue("time.time", **options).id


def claim(client: Redis, keys: Keys, *queues: str, held: tuple[str, ...] = (), wanted: int = 1) -> list[str]:
    reply = claiming.claim(client, keys, EXECUTOR, queues or ("q",), held=held, wanted=wanted)
    return [job.job_id for job in reply.jobs]


def claims_of(client: Redis, keys: Keys) -> list[str]:
    return [item.decode() for item in client.lrange(keys.claims(EXECUTOR), 0, -1)]


def queued(client: Redis, queue: str = "q") -> list[str]:
    return Queue(queue, connection=client).job_ids


def release(client: Redis, keys: Keys, running: str, why: scripts.Why = "crash", **more: Any) -> dict[str, str]:
    return dict(scripts.release(client, keys, EXECUTOR, running=running, why=why, dead=True, **more))


def test_a_claim_moves_the_job_and_brings_its_record(redis_client: Redis, keys: Keys) -> None:
    job_id = enqueue(redis_client)
    (claimed,) = claiming.claim(redis_client, keys, EXECUTOR, ["q"]).jobs
    assert claimed.job_id == job_id
    assert claimed.fields[b"origin"] == b"q"
    assert claims_of(redis_client, keys) == [job_id]
    assert queued(redis_client) == []


def test_higher_queues_come_first(redis_client: Redis, keys: Keys) -> None:
    low, high = enqueue(redis_client, "low"), enqueue(redis_client, "high")
    assert claim(redis_client, keys, "high", "low") == [high]
    assert claim(redis_client, keys, "high", "low", held=(high,)) == [low]


def test_a_claim_whose_reply_was_lost_is_returned_again(redis_client: Redis, keys: Keys) -> None:
    first, second = enqueue(redis_client), enqueue(redis_client)
    claim(redis_client, keys)
    assert claim(redis_client, keys) == [first]
    assert queued(redis_client) == [second]


def test_of_several_unknown_claims_the_most_urgent_is_kept_and_the_rest_goes_back_in_order(
    redis_client: Redis, keys: Keys
) -> None:
    lows = [enqueue(redis_client, "low") for _ in range(3)]
    high = enqueue(redis_client, "high")
    for queue in ("low", "low", "high"):
        redis_client.lmove(f"rq:queue:{queue}", keys.claims(EXECUTOR), "LEFT", "RIGHT")
    assert claim(redis_client, keys, "high", "low") == [high]
    assert queued(redis_client, "low") == lows


def test_deleted_and_cancelled_jobs_are_dropped_from_the_claims(redis_client: Redis, keys: Keys) -> None:
    deleted, kept = enqueue(redis_client), enqueue(redis_client)
    redis_client.delete(f"rq:job:{deleted}")
    assert claim(redis_client, keys) == [kept]
    assert claims_of(redis_client, keys) == [kept]


def test_suspended_workers_take_nothing(redis_client: Redis, keys: Keys) -> None:
    enqueue(redis_client)
    redis_client.set("rq:suspended", 1)
    reply = claiming.claim(redis_client, keys, EXECUTOR, ["q"])
    assert reply.suspended
    assert reply.jobs == []
    assert len(queued(redis_client)) == 1


def test_what_a_wait_brought_while_workers_were_suspended_goes_back(redis_client: Redis, keys: Keys) -> None:
    waiting = [enqueue(redis_client) for _ in range(2)]
    redis_client.lmove("rq:queue:q", keys.claims(EXECUTOR), "LEFT", "RIGHT")
    redis_client.set("rq:suspended", 1)
    assert claim(redis_client, keys) == []
    assert queued(redis_client) == waiting


def test_a_claim_writes_rqs_record_and_no_stock_maintenance_declares_it_abandoned(
    redis_client: Redis, keys: Keys
) -> None:
    job_id = enqueue(redis_client)
    claim(redis_client, keys)
    registry = Queue("q", connection=redis_client).started_job_registry
    registry.cleanup(timestamp=9e12)
    assert registry.get_job_ids(cleanup=False) == [job_id]
    assert redis_client.hget(f"rq:job:{job_id}", "status") == b"started"


def test_a_job_whose_process_died_goes_to_the_front_three_times_then_is_settled(
    redis_client: Redis, keys: Keys
) -> None:
    poison, other = enqueue(redis_client), enqueue(redis_client)
    for _ in range(3):
        assert claim(redis_client, keys) == [poison]
        assert release(redis_client, keys, poison) == {poison: "front"}
        assert queued(redis_client) == [poison, other]
        assert redis_client.zcard("rq:wip:q") == 0
    claim(redis_client, keys)
    assert release(redis_client, keys, poison, detail="killed by SIGSEGV") == {poison: "settle"}
    assert queued(redis_client) == [other]
    settled = claiming.claim(redis_client, keys, EXECUTOR, ["q"]).jobs[0]
    assert settled.job_id == poison
    assert json.loads(settled.settle or b"")["detail"] == "killed by SIGSEGV"


def test_only_the_job_that_ran_is_counted(redis_client: Redis, keys: Keys) -> None:
    ran, waited = enqueue(redis_client), enqueue(redis_client)
    claim(redis_client, keys, wanted=2)
    assert release(redis_client, keys, ran) == {ran: "front", waited: "front"}
    assert queued(redis_client) == [ran, waited]
    assert redis_client.hget(f"rq:job:{ran}", "envq_crashes") == b"1"
    assert redis_client.hget(f"rq:job:{waited}", "envq_crashes") is None


def test_where_nobody_saw_what_ran_each_of_a_batch_runs_again_alone_and_only_then_counts(
    redis_client: Redis, keys: Keys
) -> None:
    both = [enqueue(redis_client), enqueue(redis_client)]
    assert claim(redis_client, keys, wanted=2) == both
    release(redis_client, keys, "?")
    assert queued(redis_client) == both
    assert redis_client.hget(f"rq:job:{both[0]}", "envq_crashes") is None
    assert claim(redis_client, keys, wanted=2) == [both[0]]
    release(redis_client, keys, "?")
    assert redis_client.hget(f"rq:job:{both[0]}", "envq_crashes") == b"1"


def test_a_job_that_must_not_run_twice_is_settled_at_its_first_death(redis_client: Redis, keys: Keys) -> None:
    job_id = enqueue(redis_client)
    redis_client.hset(f"rq:job:{job_id}", "envq_on_crash", "fail")
    claim(redis_client, keys)
    assert release(redis_client, keys, job_id) == {job_id: "settle"}


def test_such_a_job_goes_back_if_it_had_not_begun(redis_client: Redis, keys: Keys) -> None:
    job_id = enqueue(redis_client)
    redis_client.hset(f"rq:job:{job_id}", "envq_on_crash", "fail")
    claim(redis_client, keys)
    assert release(redis_client, keys, "") == {job_id: "front"}


def test_a_settlement_whose_executor_died_is_settled_by_the_next(redis_client: Redis, keys: Keys) -> None:
    job_id = enqueue(redis_client)
    claim(redis_client, keys)
    release(redis_client, keys, job_id, "timeout")
    assert claim(redis_client, keys) == [job_id]
    assert release(redis_client, keys, "") == {job_id: "settle"}
    assert claim(redis_client, keys) == [job_id]


def test_hand_back_restores_the_time_to_live(redis_client: Redis, keys: Keys) -> None:
    job_id = enqueue(redis_client, ttl=300)
    claim(redis_client, keys)
    assert redis_client.ttl(f"rq:job:{job_id}") == -1
    release(redis_client, keys, job_id, "handback")
    assert 0 < redis_client.ttl(f"rq:job:{job_id}") <= 300
    assert redis_client.hget(f"rq:job:{job_id}", "status") == b"queued"


def test_waiting_on_several_queues_wakes_for_each_of_them(redis_client: Redis, keys: Keys, redis_url: str) -> None:
    claims = Claims(Redis.from_url(redis_url), keys, EXECUTOR)
    for queue in ("high", "low", "middle"):
        arrival = threading.Timer(0.05, enqueue, (redis_client, queue))
        arrival.start()
        claims.wait(["high", "middle", "low"], [], timeout_s=20)
        arrival.join()
        (job_id,) = claims_of(redis_client, keys)
        assert redis_client.hget(f"rq:job:{job_id}", "origin") == queue.encode()
        redis_client.delete(keys.claims(EXECUTOR))
    claims.close()


def test_a_wait_that_is_woken_leaves_no_move_behind(redis_client: Redis, keys: Keys, redis_url: str) -> None:
    claims = Claims(Redis.from_url(redis_url), keys, EXECUTOR)
    ours, theirs = socket.socketpair()
    theirs.send(b"wake")
    claims.wait(["high", "low"], [ours], timeout_s=20)
    enqueue(redis_client, "low")
    assert claims_of(redis_client, keys) == []
    assert len(queued(redis_client, "low")) == 1
    claims.close()
    ours.close()
    theirs.close()


def test_without_the_right_to_unblock_a_wait_still_ends(redis_client: Redis, keys: Keys, redis_url: str) -> None:
    redis_client.execute_command(
        "ACL", "SETUSER", "plain", "on", "nopass", "~*", "&*", "+@all", "-client", "+client|id"
    )
    host = redis_url.replace("://", "://plain:x@", 1)
    claims = Claims(Redis.from_url(host), keys, EXECUTOR)
    ours, theirs = socket.socketpair()
    theirs.send(b"wake")
    claims.wait(["high", "low"], [ours], timeout_s=20)
    enqueue(redis_client, "low")
    assert len(queued(redis_client, "low")) == 1
    claims.close()
    ours.close()
    theirs.close()
    redis_client.execute_command("ACL", "DELUSER", "plain")


@pytest.fixture
def fenced(redis_client: Redis, keys: Keys) -> FencedRedis:
    client = FencedRedis.over(redis_client)
    client.fence = Fence(keys.claims(EXECUTOR), "j1")
    client.hset(job("j1"), "status", "started")
    return client


def test_a_transaction_under_a_standing_claim_commits_and_ends_it(fenced: FencedRedis, keys: Keys) -> None:
    fenced.rpush(keys.claims(EXECUTOR), "j1")
    with fenced.pipeline() as pipeline:
        pipeline.set("result", 1)
        pipeline.end_claim()
        pipeline.execute()
    assert fenced.get("result") == b"1"
    assert fenced.llen(keys.claims(EXECUTOR)) == 0
    assert fenced.fence is not None
    assert fenced.fence.settled


def test_a_ghost_whose_claim_is_gone_writes_nothing(fenced: FencedRedis) -> None:
    with fenced.pipeline() as pipeline, pytest.raises(ClaimLost):
        pipeline.set("result", 1)
        pipeline.end_claim()
        pipeline.execute()
    assert fenced.get("result") is None


def test_a_ghost_in_a_watching_transaction_writes_nothing(fenced: FencedRedis) -> None:
    with fenced.pipeline() as pipeline, pytest.raises(ClaimLost):
        pipeline.watch("dependents")
        pipeline.multi()
        pipeline.set("result", 1)
        pipeline.end_claim()
        pipeline.execute()
    assert fenced.get("result") is None


def test_the_end_of_a_job_that_was_deleted_is_not_written_but_its_claim_ends(fenced: FencedRedis, keys: Keys) -> None:
    fenced.rpush(keys.claims(EXECUTOR), "j1")
    fenced.delete(job("j1"))
    with fenced.pipeline() as pipeline, pytest.raises(JobDeleted):
        pipeline.set("result", 1)
        pipeline.end_claim()
        pipeline.execute()
    assert fenced.get("result") is None
    with fenced.pipeline() as pipeline:
        pipeline.end_claim()
        pipeline.execute()
    assert fenced.llen(keys.claims(EXECUTOR)) == 0


def test_a_claim_taken_away_between_the_check_and_the_commit_writes_nothing(
    fenced: FencedRedis, redis_client: Redis, keys: Keys
) -> None:
    redis_client.rpush(keys.claims(EXECUTOR), "j1")
    with fenced.pipeline() as pipeline:
        pipeline.watch("dependents")
        pipeline.multi()
        redis_client.delete(keys.claims(EXECUTOR))
        pipeline.set("result", 1)
        pipeline.end_claim()
        with pytest.raises(Exception, match="Watched variable changed"):
            pipeline.execute()
    assert redis_client.get("result") is None


def test_a_cold_stop_does_not_make_a_job_run_twice_that_must_not(redis_client: Redis, keys: Keys) -> None:
    job_id = enqueue(redis_client)
    redis_client.hset(f"rq:job:{job_id}", "envq_on_crash", "fail")
    claim(redis_client, keys)
    assert release(redis_client, keys, job_id, "handback") == {job_id: "settle"}


@pytest.mark.parametrize("on_crash", ["fail", "requeue"])
def test_an_id_that_was_pushed_twice_runs_once_where_it_must(redis_client: Redis, keys: Keys, on_crash: str) -> None:
    job_id = enqueue(redis_client)
    redis_client.hset(job(job_id), "envq_on_crash", on_crash)
    redis_client.rpush("rq:queue:q", job_id)
    assert claim(redis_client, keys) == [job_id]
    assert claim(redis_client, keys) == [job_id], "only the reply was lost"
    other = claiming.claim(redis_client, keys, "other.1.1.abc", ["q"])
    assert [each.job_id for each in other.jobs] == ([] if on_crash == "fail" else [job_id])
    assert claims_of(redis_client, keys) == [job_id]
