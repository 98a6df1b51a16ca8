"""The scripts of a round trip: jobs are claimed and stored together, each as if it were alone."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import redis
from redis import Redis
from rq import Queue
from rq.job import Job
from rq.registry import clean_registries
from support.claiming import claim, finish, success
from support.processes import clean_environment
from support.servers import Server

from envq.store import scripts
from envq.store.exchange import BATCH_BYTES, Claimed, Ended, Exchange
from envq.store.keys import Keys, executions, job, results, wip, worker, worker_executions
from envq.workers.execution.wire import Wire

EXECUTOR = "host.1.1.abc"
OTHER = "host.2.1.def"


@pytest.fixture
def keys(namespace: str) -> Keys:
    return Keys(namespace)


@pytest.fixture
def wire(redis_client: Redis) -> Iterator[Wire]:
    made = Wire(redis_client)
    yield made
    made.close()


def enqueue(client: Redis, number: int = 1, queue: str = "q", fields: Mapping[str, Any] | None = None) -> list[str]:
    ids = [Queue(queue, connection=client).enqueue("time.time").id for _ in range(number)]
    for job_id in ids if fields else ():
        client.hset(job(job_id), mapping=dict(fields or {}))
    return ids


def take(client: Redis, keys: Keys, *queues: str, wanted: int = 64, executor: str = EXECUTOR, **more: Any) -> list[str]:
    return [each.job_id for each in claim(client, keys, executor, queues or ("q",), wanted=wanted, **more).jobs]


def claims_of(client: Redis, keys: Keys, executor: str = EXECUTOR) -> list[str]:
    return [item.decode() for item in client.lrange(keys.claims(executor), 0, -1)]


def queued(client: Redis, queue: str = "q") -> list[str]:
    return Queue(queue, connection=client).job_ids


def status_of(client: Redis, job_id: str) -> str:
    return (client.hget(job(job_id), "status") or b"").decode()


def register(client: Redis, executor: str = EXECUTOR) -> None:
    client.hset(worker(executor), "state", "idle")


def snapshot(client: Redis, leave_out: set[str]) -> dict[bytes, bytes | None]:
    """All that is stored, but for keys that any round trip writes."""
    kept = sorted(key for key in client.scan_iter(count=1000) if key.decode() not in leave_out)
    return {key: client.dump(key) for key in kept}


# -- claim ---------------------------------------------------------------------------------------------------


def test_many_are_claimed_the_more_urgent_queues_first(redis_client: Redis, keys: Keys) -> None:
    low, high = enqueue(redis_client, 3, "low"), enqueue(redis_client, 2, "high")
    assert take(redis_client, keys, "high", "low", wanted=4) == [*high, *low[:2]]
    assert claims_of(redis_client, keys) == [*high, *low[:2]]
    assert queued(redis_client, "low") == low[2:]
    assert {status_of(redis_client, each) for each in high} == {"started"}
    assert redis_client.zcard(wip("high")) == 2
    assert redis_client.scard(worker_executions(EXECUTOR)) == 4


def test_a_claim_takes_no_more_than_it_wants_bytes_of(redis_client: Redis, keys: Keys) -> None:
    large = enqueue(redis_client, 4, fields={"data": b"x" * (BATCH_BYTES // 2)})
    assert take(redis_client, keys) == large[:2]
    assert queued(redis_client) == large[2:]


def test_a_job_larger_than_a_batch_is_claimed_as_well(redis_client: Redis, keys: Keys) -> None:
    large = enqueue(redis_client, 2, fields={"data": b"x" * (BATCH_BYTES + 1)})
    assert take(redis_client, keys) == large[:1]


@pytest.mark.parametrize("fields", [{"envq_on_crash": "fail"}, {"envq_alone": "1"}])
def test_what_must_be_alone_is_claimed_alone_in_its_turn(
    redis_client: Redis, keys: Keys, fields: Mapping[str, str]
) -> None:
    before, alone, after = enqueue(redis_client, 2), enqueue(redis_client, 1, fields=fields), enqueue(redis_client, 2)
    assert take(redis_client, keys) == before
    assert queued(redis_client) == [*alone, *after]
    assert take(redis_client, keys, executor=OTHER) == alone
    assert take(redis_client, keys, executor="third") == after


def test_what_must_be_alone_does_not_join_what_is_held(redis_client: Redis, keys: Keys) -> None:
    held = enqueue(redis_client, 2)
    assert take(redis_client, keys) == held
    alone = enqueue(redis_client, 1, fields={"envq_on_crash": "fail"})
    assert take(redis_client, keys, held=held) == []
    assert queued(redis_client) == alone
    assert take(redis_client, keys, held=["gone before"], executor=OTHER) == alone


def test_what_must_be_settled_is_claimed_alone_and_first(redis_client: Redis, keys: Keys) -> None:
    waiting, ended = enqueue(redis_client, 2), enqueue(redis_client, 2, "other")
    for each in ended:
        redis_client.hset(job(each), "envq_settle", json.dumps({"kind": "crash"}))
        redis_client.lmove("rq:queue:other", keys.settle, "LEFT", "RIGHT")
    (settling,) = claim(redis_client, keys, EXECUTOR, ["q"], wanted=64).jobs
    assert (settling.job_id, settling.execution_id) == (ended[0], "")
    assert settling.settle
    assert redis_client.zcard(wip("other")) == 0, "it does not start"
    assert queued(redis_client) == waiting


def test_an_id_that_was_pushed_twice_is_once_in_a_batch(redis_client: Redis, keys: Keys) -> None:
    first, second, third = enqueue(redis_client, 3)
    redis_client.linsert("rq:queue:q", "AFTER", second, first)
    assert take(redis_client, keys) == [first, second]
    assert queued(redis_client) == [first, third]
    assert take(redis_client, keys, held=[first, second]) == []
    assert queued(redis_client) == [first, third]


def test_an_id_whose_first_turn_is_stored_in_the_same_trip_is_taken_again(redis_client: Redis, keys: Keys) -> None:
    """Else a burst ends before its queue is empty."""
    (job_id,) = enqueue(redis_client)
    redis_client.rpush("rq:queue:q", job_id)
    (first,) = claim(redis_client, keys, EXECUTOR, ["q"], wanted=64).jobs
    assert finish(redis_client, keys, EXECUTOR, [success(first)]) == [Ended.STORED]
    call = Exchange(keys, EXECUTOR).claim(["q"], 64, ended=[job_id])
    assert [each[0].decode() for each in call.run(redis_client)[4:]] == [job_id]


def test_ended_jobs_whose_claim_stands_are_not_taken_for_lost(redis_client: Redis, keys: Keys) -> None:
    """Those with dependents, until RQ's own code has stored them."""
    ended = enqueue(redis_client, 2)
    take(redis_client, keys)
    waiting = enqueue(redis_client)
    call = Exchange(keys, EXECUTOR).claim(["q"], 64, ended=ended)
    assert [each[0].decode() for each in call.run(redis_client)[4:]] == waiting


def test_a_claim_tells_which_of_those_held_are_gone(redis_client: Redis, keys: Keys) -> None:
    first, second = enqueue(redis_client, 2)
    take(redis_client, keys)
    redis_client.lrem(keys.claims(EXECUTOR), 1, first)
    reply = claim(redis_client, keys, EXECUTOR, [], wanted=0, held=[first, second])
    assert reply.gone == {first}
    assert reply.jobs == []


def test_a_batch_whose_reply_was_lost_comes_again_and_leaves_one_execution_each(
    redis_client: Redis, keys: Keys
) -> None:
    ids = enqueue(redis_client, 5)
    assert take(redis_client, keys) == ids
    assert take(redis_client, keys) == ids
    assert redis_client.zcard(wip("q")) == 5
    assert redis_client.scard(worker_executions(EXECUTOR)) == 5
    assert all(redis_client.zcard(executions(each)) == 1 for each in ids)
    assert take(redis_client, keys, wanted=2) == ids[:2]
    assert queued(redis_client) == ids[2:], "the others go back, in order"
    assert {status_of(redis_client, each) for each in ids[2:]} == {"queued"}
    assert redis_client.zcard(wip("q")) == 2


def test_ids_without_a_usable_record_hold_up_nobody(redis_client: Redis, keys: Keys) -> None:
    text, deleted, cancelled, odd, good = enqueue(redis_client, 5)
    redis_client.set(job(text), "not a hash")
    redis_client.delete(job(deleted))
    Job.fetch(cancelled, redis_client).cancel()
    redis_client.rpush("rq:queue:q", cancelled)
    redis_client.set(executions(odd), "not a sorted set")
    assert take(redis_client, keys) == [odd, good]
    assert claims_of(redis_client, keys) == [odd, good]
    assert dict(scripts.release(redis_client, keys, EXECUTOR, running="", why="handback", dead=True)) == {
        odd: "front",
        good: "front",
    }
    assert queued(redis_client) == [odd, good]


def test_one_event_tells_of_a_batch_without_the_arguments(redis_client: Redis, keys: Keys) -> None:
    ids = [Queue("q", connection=redis_client).enqueue("time.sleep", "secret").id for _ in range(2)]
    take(redis_client, keys)
    ((_, entry),) = redis_client.xrange(keys.events)
    told = json.loads(entry[b"event"])
    assert [each["job_id"] for each in told["jobs"]] == ids
    assert {each["func"] for each in told["jobs"]} == {"time.sleep"}
    assert b"secret" not in entry[b"event"]


# -- finish --------------------------------------------------------------------------------------------------


def batch(client: Redis, keys: Keys, number: int, **options: Any) -> list[Claimed]:
    enqueue(client, number, **options)
    return claim(client, keys, EXECUTOR, ["q"], wanted=64).jobs


def test_a_batch_is_stored_and_leaves_nothing_behind(redis_client: Redis, keys: Keys) -> None:
    register(redis_client)
    done = batch(redis_client, keys, 3)
    assert finish(redis_client, keys, EXECUTOR, map(success, done)) == [Ended.STORED] * 3
    queue = Queue("q", connection=redis_client)
    assert sorted(queue.finished_job_registry.get_job_ids()) == sorted(each.job_id for each in done)
    assert [Job.fetch(each.job_id, redis_client).return_value() for each in done] == [5, 5, 5]
    assert claims_of(redis_client, keys) == []
    assert not list(redis_client.scan_iter("rq:execution*", count=1000))
    assert redis_client.zcard(wip("q")) == 0
    assert redis_client.hget(worker(EXECUTOR), "successful_job_count") == b"3"


def test_an_end_that_is_stored_twice_changes_nothing_the_second_time(redis_client: Redis, keys: Keys) -> None:
    register(redis_client)
    ends = [*map(success, batch(redis_client, keys, 3))]
    finish(redis_client, keys, EXECUTOR, ends)
    before = snapshot(redis_client, set())
    assert finish(redis_client, keys, EXECUTOR, ends) == [Ended.GONE] * 3
    assert snapshot(redis_client, set()) == before


@pytest.mark.parametrize("dead", [False, True])
def test_a_ghost_writes_nothing_at_all(redis_client: Redis, keys: Keys, dead: bool) -> None:
    register(redis_client)
    ends = [*map(success, batch(redis_client, keys, 3))]
    scripts.release(redis_client, keys, EXECUTOR, running="?", why="crash", dead=True)
    take(redis_client, keys, executor=OTHER)
    before = snapshot(redis_client, set())
    assert finish(redis_client, keys, EXECUTOR, ends, dead=dead) == [Ended.GONE] * 3
    assert snapshot(redis_client, set()) == before


def test_a_ghost_leaves_dependents_alone(redis_client: Redis, keys: Keys) -> None:
    (claimed,) = batch(redis_client, keys, 1)
    Queue("q", connection=redis_client).enqueue("time.time", depends_on=claimed.job_id)
    scripts.release(redis_client, keys, EXECUTOR, running="", why="handback", dead=True)
    before = snapshot(redis_client, set())
    assert finish(redis_client, keys, EXECUTOR, [success(claimed)], dead=True) == [Ended.GONE]
    assert snapshot(redis_client, set()) == before


def test_a_job_that_was_deleted_while_it_ran_does_not_come_back(redis_client: Redis, keys: Keys) -> None:
    deleted, kept = batch(redis_client, keys, 2)
    Job.fetch(deleted.job_id, redis_client).delete()
    assert finish(redis_client, keys, EXECUTOR, map(success, (deleted, kept))) == [Ended.DELETED, Ended.STORED]
    assert not redis_client.exists(job(deleted.job_id), results(deleted.job_id), executions(deleted.job_id))
    assert claims_of(redis_client, keys) == []
    assert redis_client.zcard(wip("q")) == 0


def test_a_job_that_gained_dependents_stays_claimed_and_unstored(redis_client: Redis, keys: Keys) -> None:
    parent, plain = batch(redis_client, keys, 2)
    Queue("q", connection=redis_client).enqueue("time.time", depends_on=parent.job_id)
    assert finish(redis_client, keys, EXECUTOR, map(success, (parent, plain))) == [Ended.HAS_DEPENDENTS, Ended.STORED]
    assert claims_of(redis_client, keys) == [parent.job_id]
    assert status_of(redis_client, parent.job_id) == "started"
    assert not redis_client.exists(results(parent.job_id))


def test_such_a_job_of_a_dead_executor_is_left_to_the_next_with_its_result(redis_client: Redis, keys: Keys) -> None:
    (parent,) = batch(redis_client, keys, 1)
    Queue("q", connection=redis_client).enqueue("time.time", depends_on=parent.job_id)
    assert finish(redis_client, keys, EXECUTOR, [success(parent)], dead=True) == [Ended.HAS_DEPENDENTS]
    assert claims_of(redis_client, keys) == []
    (settling,) = claim(redis_client, keys, OTHER, ["q"], wanted=64).jobs
    assert settling.job_id == parent.job_id
    assert json.loads(settling.settle or b"")["result"] == "gARLBS4="


@pytest.mark.parametrize(("ttl", "left"), [(0, -2), (-1, -1), (60, 60)])
def test_results_live_as_long_as_they_should(redis_client: Redis, keys: Keys, ttl: int, left: int) -> None:
    (claimed,) = batch(redis_client, keys, 1)
    assert finish(redis_client, keys, EXECUTOR, [success(claimed, result_ttl=ttl)]) == [Ended.STORED]
    assert redis_client.ttl(job(claimed.job_id)) == left
    assert redis_client.ttl(results(claimed.job_id)) == left
    kept = Queue("q", connection=redis_client).finished_job_registry.get_job_ids(cleanup=False)
    assert kept == ([] if ttl == 0 else [claimed.job_id])


def test_a_record_that_is_something_else_by_now_is_left_as_it_is(redis_client: Redis, keys: Keys) -> None:
    odd, plain = batch(redis_client, keys, 2)
    redis_client.set(job(odd.job_id), "text")
    assert finish(redis_client, keys, EXECUTOR, map(success, (odd, plain))) == [Ended.DELETED, Ended.STORED]
    assert redis_client.get(job(odd.job_id)) == b"text"
    assert claims_of(redis_client, keys) == []


def test_a_result_for_which_there_is_no_room_is_left_to_rqs_own_code(redis_client: Redis, keys: Keys) -> None:
    odd, plain = batch(redis_client, keys, 2)
    redis_client.set(results(odd.job_id), "text")
    assert finish(redis_client, keys, EXECUTOR, map(success, (odd, plain))) == [Ended.HAS_DEPENDENTS, Ended.STORED]
    assert claims_of(redis_client, keys) == [odd.job_id]
    assert status_of(redis_client, odd.job_id) == "started"


# -- giving back ---------------------------------------------------------------------------------------------


def give_back(client: Redis, keys: Keys, trip: int, *leave: str) -> list[str]:
    back: list[bytes] | None = Exchange(keys, EXECUTOR).give_back(trip, leave).run(client)
    return [each.decode() for each in back or ()]


def test_what_waits_goes_back_in_order_with_the_time_to_live_that_is_left(redis_client: Redis, keys: Keys) -> None:
    register(redis_client)
    queue = Queue("q", connection=redis_client)
    ids = [queue.enqueue("time.time", ttl=300).id for _ in range(4)]
    (behind,) = enqueue(redis_client)
    take(redis_client, keys, wanted=4, trip=7)
    assert redis_client.ttl(job(ids[1])) == -1
    assert set(give_back(redis_client, keys, 7, ids[0])) == set(ids[1:])
    assert queued(redis_client) == [*ids[1:], behind]
    assert claims_of(redis_client, keys) == ids[:1]
    assert {status_of(redis_client, each) for each in ids[1:]} == {"queued"}
    assert all(0 < redis_client.ttl(job(each)) <= 300 for each in ids[1:])
    assert redis_client.zcard(wip("q")) == 1
    assert redis_client.scard(worker_executions(EXECUTOR)) == 1
    assert not redis_client.hexists(job(ids[1]), "envq_crashes")


def test_nothing_goes_back_once_the_executor_has_made_another_trip(redis_client: Redis, keys: Keys) -> None:
    register(redis_client)
    ids = enqueue(redis_client, 3)
    take(redis_client, keys, trip=7)
    claim(redis_client, keys, EXECUTOR, [], wanted=0, held=ids, trip=8)
    assert give_back(redis_client, keys, 7, ids[0]) == []
    assert claims_of(redis_client, keys) == ids
    redis_client.delete(worker(EXECUTOR))
    assert give_back(redis_client, keys, 8, ids[0]) == [], "nor where nobody knows"


def test_a_hand_back_restores_the_time_to_live_of_a_whole_batch(redis_client: Redis, keys: Keys) -> None:
    queue = Queue("q", connection=redis_client)
    ids = [queue.enqueue("time.time", ttl=300).id for _ in range(3)]
    take(redis_client, keys)
    scripts.release(redis_client, keys, EXECUTOR, running="", why="handback", dead=False)
    assert queued(redis_client) == ids
    assert all(0 < redis_client.ttl(job(each)) <= 300 for each in ids)


# -- servers in trouble, and RQ's own tools -------------------------------------------------------------------


def test_a_server_that_forgot_the_scripts_is_told_again(redis_client: Redis, keys: Keys, wire: Wire) -> None:
    exchange = Exchange(keys, EXECUTOR)
    ids = enqueue(redis_client, 3)
    held: list[Claimed] = []
    for job_id in ids:
        redis_client.script_flush()
        ends, ended = [*map(success, held)], [each.job_id for each in held]
        calls = [exchange.finish(ends, time.time())] if ends else []
        wire.send(*calls, exchange.claim(["q"], 1, ended=ended))
        *outcomes, reply = wire.receive()
        assert outcomes == ([[Ended.STORED]] if held else [])
        assert reply[4][0].decode() == job_id
        held = [Claimed(job_id, reply[4][1].decode(), dict(zip(reply[4][2][::2], reply[4][2][1::2], strict=True)))]


def test_a_queue_drains_where_the_server_has_no_memory_left(own_server: Callable[..., Server], keys: Keys) -> None:
    server = own_server("--maxmemory-policy", "noeviction")
    with server.client() as client:
        ids = enqueue(client, 100)
        client.config_set("maxmemory", 1)
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            client.set("more", 1)
        drained: list[str] = []
        while done := claim(client, keys, EXECUTOR, ["q"], wanted=7).jobs:
            assert finish(client, keys, EXECUTOR, map(success, done)) == [Ended.STORED] * len(done)
            drained += [each.job_id for each in done]
        assert drained == ids
        assert {status_of(client, each) for each in ids} == {"finished"}


def test_rqs_maintenance_and_tools_declare_no_claim_abandoned(redis_client: Redis, keys: Keys, redis_url: str) -> None:
    register(redis_client)
    done = batch(redis_client, keys, 3)
    queue = Queue("q", connection=redis_client)
    queue.started_job_registry.cleanup(timestamp=9e12)
    clean_registries(queue)
    assert queue.started_job_registry.count == 3
    shown = subprocess.run(
        [sys.executable, "-m", "rq.cli", "info", "--url", redis_url],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert queue.failed_job_registry.count == 0
    assert claims_of(redis_client, keys) == [each.job_id for each in done]
    assert finish(redis_client, keys, EXECUTOR, map(success, done)) == [Ended.STORED] * 3
