"""Many jobs at once: the same records and the same Job objects as one by one, in few round trips of a bounded size."""

from __future__ import annotations

import copy
import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import rq.job
from support.servers import Server

import envq
from envq.driver.client import Client
from envq.jobs.fast_enqueue import new_ids

ONLY_OF_ONE_JOB = ("_id", "_data", "created_at", "enqueued_at")


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    new = Client(redis_url)
    yield new
    new.close()


@pytest.fixture
def alone(own_server: Callable[..., Server]) -> Iterator[Client]:
    """On a server that nobody else sends commands to."""
    new = Client(own_server().url())
    yield new
    new.close()


def work(x: Any = 0, **_: Any) -> Any:
    return x


class OwnJob(envq.Job[Any]):
    """A user's job class."""

    def shout(self) -> str:
        return f"{self.origin}!"


def scripts_run(client: Client) -> int:
    """How many scripts the server has run for others."""
    statistics: dict[str, Any] = client.connection.info("commandstats")
    return int(statistics.get("cmdstat_evalsha", {"calls": 0})["calls"])


def prepared(function: Any, number: int, **options: Any) -> list[Any]:
    return [envq.Queue.prepare_data(function, (each,), **options) for each in range(number)]


@pytest.mark.parametrize("job_class", [envq.Job, OwnJob, rq.job.Job])
def test_a_job_made_in_bulk_is_as_one_that_was_read(job_class: Any, client: Client) -> None:
    queue = envq.Queue("mail", client=client, job_class=job_class)
    jobs = queue.enqueue_calls(work, [(1,), (2,)], 7.5, meta={"a": 1}, retry=envq.Retry(2, [1, 2]), ttl=99)
    for number, job in enumerate(jobs, start=1):
        stored = job_class.fetch(job.id, connection=client.connection)
        assert type(job) is job_class
        for name in ("origin", "timeout", "meta", "retry_intervals", "ttl", "args", "kwargs", "func_name", "data"):
            assert getattr(job, name) == getattr(stored, name), name
        for name in ("created_at", "enqueued_at", "description", "retries_left", "serializer", "connection"):
            assert getattr(job, name) == getattr(stored, name) or name == "serializer", name
        assert (job.args, job.get_status(refresh=False).value, job.time_limit) == ((number,), "queued", 7.5)
        assert job == stored
        assert job.get_status().value == "queued"
    assert 0 < client.connection.ttl(f"rq:job:{jobs[0].id}") <= 99


@pytest.mark.parametrize("job_class", [envq.Job, OwnJob])
def test_jobs_made_in_bulk_share_nothing_that_changes(job_class: Any, client: Client) -> None:
    queue = envq.Queue(client=client, job_class=job_class)
    first, second = queue.enqueue_calls(work, [(1,), (2,)], meta={"a": 1}, retry=envq.Retry(2, [1, 2]))
    first.meta["a"] = 2
    first.retry_intervals.append(3)
    first._dependency_ids.append("x")
    assert (second.meta, second.retry_intervals, second._dependency_ids) == ({"a": 1}, [1, 2], [])


def test_what_is_set_on_a_job_that_was_not_looked_at_stays(client: Client) -> None:
    (job,) = envq.Queue(client=client).enqueue_calls(work, [(1,)])
    job.meta = {"mine": True}
    job.description = "mine"
    assert (job.origin, job.meta, job.description) == ("default", {"mine": True}, "mine")
    job.save()
    assert envq.Job.fetch(job.id, connection=client.connection).meta == {"mine": True}
    assert repr(job) == f"Job({job.id!r}, mine, queued)"


def test_options_that_change_after_a_job_was_enqueued_do_not_change_it(client: Client) -> None:
    meta = {"number": 0}
    queue = envq.Queue(client=client)
    jobs: list[Any] = []
    for meta["number"] in range(3):
        jobs += queue.enqueue_calls(work, [(1,)], meta=meta)
    assert [job.meta["number"] for job in jobs] == [0, 1, 2]
    assert [job.get_meta()["number"] for job in jobs] == [0, 1, 2]


def test_a_job_that_was_not_looked_at_can_be_copied_and_has_no_attribute_too_many(client: Client) -> None:
    job, other = envq.Queue(client=client).enqueue_calls(work, [(1,), (2,)])
    twin = copy.copy(job)
    assert (twin.id, twin.args, twin.origin) == (job.id, (1,), "default")
    assert not hasattr(other, "nothing")
    with pytest.raises(AttributeError, match="'Job' object has no attribute 'nothing'"):
        _ = other.nothing
    read = envq.Job.fetch(job.id, connection=client.connection)
    with pytest.raises(AttributeError, match="'Job' object has no attribute 'nothing'"):
        _ = read.nothing  # type: ignore[attr-defined]


def test_what_a_property_of_a_job_raises_is_not_hidden(client: Client) -> None:
    job = envq.Queue(client=client).enqueue("os.path.no_such_function")
    stored = envq.Job.fetch(job.id, connection=client.connection)
    for each in (job, stored):
        with pytest.raises((AttributeError, ValueError), match="no_such_function"):
            _ = each.func
    bound = envq.Queue(client=client).enqueue([1, 2].index, 1)
    assert callable(bound.instance)  # read before the call is changed
    bound.func_name = "no_such_method"
    with pytest.raises(AttributeError, match="object has no attribute 'no_such_method'"):
        _ = bound.func


def test_a_round_trip_ends_at_so_many_jobs_or_bytes(alone: Client) -> None:
    queue = envq.Queue(client=alone)
    queue.enqueue(work)
    before = scripts_run(alone)
    queue.enqueue_calls(work, ((number,) for number in range(1001)))
    assert scripts_run(alone) - before == 3
    large = os.urandom(600 * 1024)
    jobs = queue.enqueue_calls(work, ((large,) for _ in range(8)))
    assert scripts_run(alone) - before == 3 + 4
    assert queue.job_ids[-8:] == [job.id for job in jobs]
    stored = rq.job.Job.fetch(jobs[-1].id, connection=alone.connection)
    assert stored.args == (large,)


def test_alike_calls_of_enqueue_many_go_in_bulk_and_others_in_one_transaction(alone: Client) -> None:
    queue = envq.Queue("mail", client=alone)
    queue.enqueue(work)
    before = scripts_run(alone)
    alike = queue.enqueue_many(prepared(work, 1001, timeout=0.5, description="many", result_ttl=9))
    assert scripts_run(alone) - before == 3
    assert queue.job_ids[1:] == [job.id for job in alike]
    assert [job.args for job in alike] == [(number,) for number in range(1001)]
    stored = envq.Job.fetch(alike[-1].id, connection=alone.connection)
    assert (stored.time_limit, stored.description, stored.result_ttl) == (0.5, "many", 9)
    different = queue.enqueue_many([*prepared(work, 2), *prepared(len, 1), *prepared(work, 1, meta={"a": 1})])
    assert scripts_run(alone) - before == 3
    assert queue.job_ids[-4:] == [job.id for job in different]
    front = queue.enqueue_many(prepared(work, 2, at_front=True))
    assert queue.job_ids[:2] == [job.id for job in reversed(front)]
    named = queue.enqueue_many([envq.Queue.prepare_data(work, job_id="named", kwargs={"y": 1})])
    assert (named[0].id, named[0].kwargs) == ("named", {"y": 1})
    assert queue.enqueue_many([]) == []


def test_keyword_arguments_survive_enqueue_many(client: Client) -> None:
    datas = [envq.Queue.prepare_data(work, kwargs={"x": number}) for number in range(3)]
    jobs = envq.Queue(client=client).enqueue_many(iter(datas))
    assert [(job.args, job.kwargs) for job in jobs] == [((), {"x": number}) for number in range(3)]


def test_an_argument_that_cannot_travel_stops_before_its_round_trip(client: Client) -> None:
    queue = envq.Queue(client=client)
    arguments: list[Any] = [(number,) for number in range(700)]
    arguments[600] = (redis.Redis(),)
    with pytest.raises(envq.PayloadError, match="argument 0"):
        queue.enqueue_calls(work, arguments)
    assert queue.count == 500


@pytest.mark.parametrize("function", [work, lambda x=0: x])
def test_a_record_takes_no_more_of_redis_than_rq_s(function: Any, client: Client) -> None:
    stock = rq.Queue(connection=client.connection)
    name = f"{__name__}.work" if function is work else "envq.remote.call"
    theirs = stock.enqueue(name, *envq.Queue(client=client).enqueue(function).args)
    ours = envq.Queue(client=client).enqueue(function)
    sizes = [int(client.connection.memory_usage(f"rq:job:{job.id}") or 0) for job in (ours, theirs)]
    assert 0 < sizes[0] <= sizes[1]


def test_ids_are_random_uuids() -> None:
    ids = new_ids(1000)
    assert len(set(ids)) == 1000
    assert {(each.version, each.variant) for each in map(uuid.UUID, ids)} == {(4, uuid.RFC_4122)}
    assert [str(uuid.UUID(each)) for each in ids] == ids
    assert {each[19] for each in ids} == set("89ab")
