"""What an executor holds, on a real server: nothing runs twice for it, nothing is forgotten."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from redis import Redis
from rq import Queue
from rq.job import Job
from support.claiming import claim
from support.proxy import CUT_AFTER, CUT_BEFORE, CUT_INSIDE, CuttingProxy
from support.servers import Server
from support.waiting import eventually

from envq.store import scripts
from envq.store.exchange import Claimed, Exchange, Success
from envq.store.keys import Keys, job, worker
from envq.workers.execution.batch import Batch
from envq.workers.execution.claims import Claims
from envq.workers.execution.wire import Wire
from envq.workers.executor import Executor
from envq.workers.ledger import CAPACITY, Ledger
from envq.workers.slot import Slot

EXECUTOR = "host.1.1.abc"
OTHER = "host.2.1.def"


class Holder:
    """A batch, with the shared memory that its supervisor reads."""

    def __init__(self, client: Redis, keys: Keys, *, trust_s: float = 60.0) -> None:
        client.hset(worker(EXECUTOR), "state", "idle")
        self.ledger = Ledger(multiprocessing.get_context("fork"))
        self.exchange = Exchange(keys, EXECUTOR)
        self.wire = Wire(client)
        self.batch = Batch(self.wire, self.exchange, self.ledger, Claims(client, keys, EXECUTOR), trust_s)
        self.slow: list[str] = []

    def end(self, claimed: Claimed, result: bytes = b"gARLBS4=") -> bool:
        queue = claimed.fields[b"origin"].decode()
        told = f'"queue":"{queue}","func":"f"'
        done = Success(claimed.job_id, claimed.execution_id, queue, told, 1.0, 2.0, 500, result, False, False)
        return self.batch.end(done, lambda: self.slow.append(claimed.job_id))


@pytest.fixture
def keys(namespace: str) -> Keys:
    return Keys(namespace)


@pytest.fixture
def holder(redis_client: Redis, keys: Keys) -> Iterator[Holder]:
    made = Holder(redis_client, keys)
    yield made
    made.wire.close()


@pytest.fixture
def proxy(server: Server) -> Iterator[CuttingProxy]:
    made = CuttingProxy(server.port)
    yield made
    made.close()


@pytest.fixture
def behind(redis_client: Redis, keys: Keys, proxy: CuttingProxy) -> Iterator[Holder]:
    """A holder whose connections can be cut."""
    database = redis_client.connection_pool.connection_kwargs["db"]
    client = redis.Redis(port=proxy.port, db=database, retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0))
    made = Holder(client, keys)
    yield made
    made.wire.close()
    client.close()


def enqueue(client: Redis, number: int) -> list[str]:
    return [Queue("q", connection=client).enqueue("time.time").id for _ in range(number)]


def started(holder: Holder) -> list[Claimed]:
    return [*iter(holder.batch.next, None)]


def statuses(client: Redis, ids: list[str]) -> list[str]:
    return [(client.hget(job(each), "status") or b"").decode() for each in ids]


def relieve(client: Redis, holder: Holder, *leave: str) -> int:
    """What a supervisor does."""
    view = holder.ledger.read()
    holder.ledger.seize(view.trip)
    if view.ends:
        holder.exchange.finish(view.ends, 3.0).run(client)
    return len(holder.exchange.give_back(view.trip, leave).run(client) or ())


def test_what_has_ended_is_stored_with_the_next_claim(redis_client: Redis, holder: Holder) -> None:
    ids = enqueue(redis_client, 3)
    holder.batch.take(["q"], 2)
    assert all(map(holder.end, started(holder)))
    assert holder.batch.unstored == 2
    assert len(holder.ledger.read().ends) == 2
    holder.batch.take(["q"], 2)
    assert statuses(redis_client, ids) == ["finished", "finished", "started"]
    assert holder.ledger.read().ends == []


def test_what_was_given_back_does_not_begin(redis_client: Redis, holder: Holder) -> None:
    ids = enqueue(redis_client, 4)
    holder.batch.take(["q"], 4)
    first, long = holder.batch.next(), holder.batch.next()
    assert first
    assert long
    holder.end(first)
    assert relieve(redis_client, holder, long.job_id) == 2
    assert statuses(redis_client, ids) == ["finished", "started", "queued", "queued"]
    holder.end(long)
    third = holder.batch.next()
    assert third
    assert holder.batch.seized
    assert not holder.batch.still_ours(third)
    assert holder.batch.next() is None
    assert statuses(redis_client, ids) == ["finished", "finished", "queued", "queued"]
    assert not holder.batch.seized


def test_an_executor_that_asks_first_keeps_what_waits(redis_client: Redis, holder: Holder) -> None:
    enqueue(redis_client, 3)
    holder.batch.take(["q"], 3)
    view = holder.ledger.read()
    holder.ledger.seize(view.trip)
    first = holder.batch.next()
    assert first
    assert holder.batch.still_ours(first)
    assert holder.exchange.give_back(view.trip, [first.job_id]).run(redis_client) is None
    assert len(started(holder)) == 2


def test_an_end_for_which_there_is_no_room_is_not_taken(redis_client: Redis, holder: Holder) -> None:
    """Nobody could store it if the executor died now; a job that must not run twice would."""
    enqueue(redis_client, 2)
    holder.batch.take(["q"], 2)
    small, large = started(holder)
    assert holder.end(small)
    assert not holder.end(large, b"x" * CAPACITY)
    assert holder.batch.unstored == 1
    assert len(holder.ledger.read().ends) == 1
    holder.batch.store()
    assert statuses(redis_client, [small.job_id]) == ["finished"]


def test_those_with_dependents_are_stored_one_by_one_and_noted_until_then(redis_client: Redis, holder: Holder) -> None:
    ids = enqueue(redis_client, 3)
    holder.batch.take(["q"], 3)
    for each in ids[:2]:
        Queue("q", connection=redis_client).enqueue("time.time", depends_on=each)
    noted: list[int] = []
    for claimed in started(holder):
        done = Success(claimed.job_id, claimed.execution_id, "q", '"a":1', 1.0, 2.0, 500, b"", False, False)
        holder.batch.end(done, lambda: noted.append(len(holder.ledger.read().ends)))
    holder.batch.store()
    assert noted == [2, 1]
    assert holder.ledger.read().ends == []
    assert statuses(redis_client, ids) == ["started", "started", "finished"]


def test_an_error_while_one_is_stored_leaves_the_others_to_the_next_trip(redis_client: Redis, holder: Holder) -> None:
    ids = enqueue(redis_client, 2)
    holder.batch.take(["q"], 2)
    tries: list[str] = []

    def fail_once(job_id: str) -> None:
        tries.append(job_id)
        if len(tries) == 1:
            raise redis.ConnectionError("lost")

    for claimed in started(holder):
        Queue("q", connection=redis_client).enqueue("time.time", depends_on=claimed.job_id)
        done = Success(claimed.job_id, claimed.execution_id, "q", '"a":1', 1.0, 2.0, 500, b"", False, False)
        holder.batch.end(done, lambda job_id=claimed.job_id: fail_once(job_id))
    with pytest.raises(redis.ConnectionError):
        holder.batch.store()
    assert holder.batch.unstored == 2
    holder.batch.store()
    assert tries == [ids[0], *ids]


@pytest.mark.parametrize("where", [CUT_BEFORE, CUT_AFTER, CUT_INSIDE])
def test_a_connection_cut_in_a_claim_loses_nothing(
    redis_client: Redis, proxy: CuttingProxy, behind: Holder, where: str
) -> None:
    ids = enqueue(redis_client, 3)
    proxy.cut(b"EVALSHA", where, times=1)
    with pytest.raises(redis.ConnectionError):
        behind.batch.take(["q"], 3)
    behind.batch.take(["q"], 3)
    assert [each.job_id for each in started(behind)] == ids
    assert redis_client.zcard("rq:wip:q") == 3


@pytest.mark.parametrize("where", [CUT_BEFORE, CUT_AFTER, CUT_INSIDE])
def test_a_connection_cut_while_storing_stores_each_once(
    redis_client: Redis, proxy: CuttingProxy, behind: Holder, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    ids = enqueue(redis_client, 5)
    behind.batch.take(["q"], 3)
    assert all(map(behind.end, started(behind)))
    proxy.cut(b"EVALSHA", where, times=1)
    with pytest.raises(redis.ConnectionError):
        behind.batch.take(["q"], 2)
    assert behind.batch.unstored == 3
    behind.batch.take(["q"], 2)
    assert [each.job_id for each in started(behind)] == ids[3:]
    assert statuses(redis_client, ids) == ["finished"] * 3 + ["started"] * 2
    assert [len(Job.fetch(each, redis_client).results()) for each in ids[:3]] == [1, 1, 1]
    assert behind.slow == []
    assert "another executor" not in caplog.text


@pytest.mark.parametrize("where", [CUT_BEFORE, CUT_AFTER, CUT_INSIDE])
def test_a_connection_cut_while_handing_back_leaves_each_id_in_one_place(
    redis_client: Redis, keys: Keys, proxy: CuttingProxy, behind: Holder, where: str
) -> None:
    ids = enqueue(redis_client, 3)
    behind.batch.take(["q"], 3)
    proxy.cut(b"EVALSHA", where, times=1)
    with pytest.raises(redis.ConnectionError):
        behind.batch.hand_back()
    claimed = [item.decode() for item in redis_client.lrange(keys.claims(EXECUTOR), 0, -1)]
    assert sorted(claimed + Queue("q", connection=redis_client).job_ids) == sorted(ids)
    behind.batch.forget_waiting()
    behind.batch.take(["q"], 3)
    assert [each.job_id for each in started(behind)] == ids


def test_where_redis_is_away_what_waits_is_asked_for_anew(
    redis_client: Redis, proxy: CuttingProxy, behind: Holder
) -> None:
    """What a supervisor gave back meanwhile must not begin here."""
    ids = enqueue(redis_client, 3)
    behind.batch.take(["q"], 3)
    first = behind.batch.next()
    assert first
    behind.end(first)
    proxy.cut(b"EVALSHA", CUT_AFTER, times=1)
    behind.batch.try_store()
    assert behind.batch.waiting == 0
    behind.batch.take(["q"], 3)
    assert [each.job_id for each in started(behind)] == ids[1:]
    assert statuses(redis_client, ids) == ["finished", "started", "started"]


def test_a_ghost_drops_what_was_given_to_others(redis_client: Redis, keys: Keys, holder: Holder) -> None:
    ids = enqueue(redis_client, 3)
    holder.batch.take(["q"], 3)
    first = holder.batch.next()
    assert first
    holder.end(first)
    scripts.release(redis_client, keys, EXECUTOR, running="?", why="crash", dead=True)
    claim(redis_client, keys, OTHER, ["q"], wanted=64)
    holder.batch.store()
    assert holder.batch.waiting == 0
    assert statuses(redis_client, ids)[0] == "started", "the other's"
    assert holder.batch.unstored == 0


def test_what_is_given_back_while_others_are_stored_does_not_begin(redis_client: Redis, holder: Holder) -> None:
    """Storing one with dependents may take long: the executor looks busy, and what it has asked is out of date."""
    parent, second, third = enqueue(redis_client, 3)
    Queue("q", connection=redis_client).enqueue("time.time", depends_on=parent)
    holder.batch.take(["q"], 3)
    first = holder.batch.next()
    assert first
    done = Success(first.job_id, first.execution_id, "q", '"a":1', 1.0, 2.0, 500, b"", False, False)
    holder.batch.end(done, lambda: holder.slow.append(f"{relieve(redis_client, holder, parent)} went back"))
    holder.ledger.seize(holder.ledger.trip)
    executor: Any = object.__new__(Executor)
    executor._slot, executor._parts = Slot(multiprocessing.get_context("fork")), SimpleNamespace(batch=holder.batch)
    executor._run_job = lambda claimed: pytest.fail(f"{claimed.job_id} began")
    assert executor._run(holder.batch.next()) is None
    assert holder.slow == ["2 went back"]
    assert statuses(redis_client, [second, third]) == ["queued", "queued"]
    assert executor._slot.read().ran == ""


def test_a_trip_sent_early_stores_what_ended_before_and_what_ends_meanwhile_is_noted(
    redis_client: Redis, holder: Holder
) -> None:
    ids = enqueue(redis_client, 5)
    holder.batch.take(["q"], 1)
    assert all(map(holder.end, started(holder)))
    holder.batch.take(["q"], 2)
    holder.batch.ask(["q"], 2)
    second = started(holder)
    assert all(map(holder.end, second))
    assert len(holder.ledger.read().ends) == 2
    assert [each.job_id for each in holder.batch.take(["q"], 2).jobs] == ids[3:]
    assert statuses(redis_client, ids) == ["finished"] + ["started"] * 4
    assert len(holder.ledger.read().ends) == 2
    holder.batch.store()
    assert statuses(redis_client, ids)[:3] == ["finished"] * 3
    assert holder.ledger.read().ends == []


def test_what_a_trip_sent_early_claims_waits_until_it_is_taken(redis_client: Redis, holder: Holder) -> None:
    ids = enqueue(redis_client, 4)
    holder.batch.take(["q"], 2)
    holder.batch.ask(["q"], 2)
    assert all(map(holder.end, started(holder)))
    holder.batch.store()
    assert holder.batch.next() is None, "its generation was not looked at"
    assert [each.job_id for each in holder.batch.take(["q"], 2).jobs] == ids[2:]


def test_an_empty_reply_to_a_trip_sent_early_is_asked_for_again(redis_client: Redis, holder: Holder) -> None:
    enqueue(redis_client, 1)
    holder.batch.take(["q"], 1)
    holder.batch.ask(["q"], 2)
    assert all(map(holder.end, started(holder)))
    late = enqueue(redis_client, 1)
    assert [each.job_id for each in holder.batch.take(["q"], 2).jobs] == late
    assert holder.batch.unstored == 0


def test_a_trip_under_way_is_dropped_with_its_connection(redis_client: Redis, holder: Holder) -> None:
    ids = enqueue(redis_client, 4)
    holder.batch.take(["q"], 2)
    first, waiting = holder.batch.next(), holder.batch.next()
    assert first
    assert waiting
    holder.end(first)
    holder.batch.ask(["q"], 2)
    holder.batch.forget_waiting()
    assert {each.job_id for each in holder.batch.take(["q"], 4).jobs} == set(ids[1:])
    assert statuses(redis_client, ids) == ["finished", "started", "started", "started"]
    assert redis_client.xlen(f"rq:results:{ids[0]}") == 1


def test_what_is_given_back_while_a_trip_is_under_way_does_not_begin(redis_client: Redis, holder: Holder) -> None:
    ids = enqueue(redis_client, 6)
    holder.batch.take(["q"], 3)
    holder.batch.ask(["q"], 2)
    running, waiting = holder.batch.next(), holder.batch.next()
    assert running
    assert waiting
    eventually(lambda: len(queued(redis_client)) == 1)
    assert relieve(redis_client, holder, running.job_id) == 4
    assert queued(redis_client) == ids[1:]
    holder.end(running)
    assert holder.batch.seized
    assert not holder.batch.still_ours(waiting)
    assert holder.batch.next() is None
    assert [each.job_id for each in holder.batch.take(["q"], 1).jobs] == [ids[1]], "it went back to the front"


def queued(client: Redis) -> list[str]:
    return Queue("q", connection=client).job_ids


def test_what_was_claimed_early_and_given_back_does_not_begin(redis_client: Redis, keys: Keys, holder: Holder) -> None:
    """The reply that brings it is older than that; asking early for more must not hide it."""
    ids = enqueue(redis_client, 8)
    holder.batch.take(["q"], 4)
    holder.batch.ask(["q"], 4)
    *short, long = started(holder)
    assert all(map(holder.end, short))
    eventually(lambda: redis_client.llen(keys.claims(EXECUTOR)) == 8)
    assert relieve(redis_client, holder, long.job_id) == 4
    holder.end(long)
    assert [each.job_id for each in holder.batch.take(["q"], 4).jobs] == ids[4:]
    holder.batch.ask(["q"], 4)
    claimed = holder.batch.next()
    assert claimed
    assert holder.batch.seized
    assert not holder.batch.still_ours(claimed)
    assert started(holder) == []


def test_an_executor_that_was_away_for_long_asks_before_it_goes_on(redis_client: Redis, keys: Keys) -> None:
    """Its machine slept, say: others have run what waited."""
    holder = Holder(redis_client, keys, trust_s=0.5)
    enqueue(redis_client, 3)
    holder.batch.take(["q"], 3)
    first = holder.batch.next()
    assert first
    scripts.release(redis_client, keys, EXECUTOR, running="?", why="crash", dead=True)
    eventually(lambda: holder.batch.seized)
    assert not holder.batch.still_ours(first)
    assert holder.batch.waiting == 0


def test_what_a_wait_brought_from_some_queues_says_nothing_of_others(redis_client: Redis, holder: Holder) -> None:
    (waiting,) = enqueue(redis_client, 1)
    holder.batch.wait("other", 1, [], 0.01)
    assert [each.job_id for each in holder.batch.take(["q", "other"], 1).jobs] == [waiting]


def test_what_ended_during_an_early_trip_is_stored_although_no_queue_is_open_any_more(
    redis_client: Redis, holder: Holder
) -> None:
    ids = enqueue(redis_client, 1)
    holder.batch.take(["q"], 1)
    holder.batch.ask(["q"], 1)
    assert all(map(holder.end, started(holder)))
    assert holder.batch.take([], 1).jobs == []
    assert statuses(redis_client, ids) == ["finished"]
