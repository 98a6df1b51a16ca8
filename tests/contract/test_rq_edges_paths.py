"""RQ's sharp edges around its own ways of enqueuing, reading and storing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import rq
from rq.executions import Execution
from support.deployment import Deployment
from support.gate import Gate
from support.waiting import eventually

import envq
from envq.cli.overview import read
from envq.cli.target import opened
from envq.driver.client import Client
from envq.store.events import read as read_events

WORKER = ("high", "default", "--kill-grace", "1")


def told_of(client: Client) -> dict[str, set[str]]:
    """Kinds of events by job."""
    kinds: dict[str, set[str]] = {}
    for _, fields in client.connection.xrange(client.keys.events):  # type: ignore[union-attr]
        for event in read_events(fields[b"event"]):
            kinds.setdefault(event.job_id, set()).add(event.kind)
    return kinds


def by_stock_queue(queue: rq.Queue) -> rq.job.Job:
    return queue.enqueue("operator.add", 1, 2)


def by_scheduler(queue: rq.Queue) -> rq.job.Job:
    from datetime import timedelta

    return queue.enqueue_in(timedelta(0), "operator.add", 1, 2)


def as_dependent(queue: rq.Queue) -> rq.job.Job:
    return queue.enqueue("operator.add", 1, 2, depends_on=queue.enqueue("operator.add", 3, 4))


def by_requeue(queue: rq.Queue) -> rq.job.Job:
    job = queue.enqueue("operator.truediv", 1, 0)
    eventually(lambda: job.get_status() == "failed")
    queue.connection.delete(f"rq:results:{job.id}")
    job.func_name, job.args = "operator.add", (1, 2)
    job.save()
    queue.failed_job_registry.requeue(job.id)
    return job


def by_rate_limit(queue: rq.Queue) -> rq.job.Job:
    limit = envq.RateLimit("paths", 1)
    return [queue.enqueue("operator.add", 1, 2, rate_limit=limit) for _ in range(2)][1]


@pytest.mark.parametrize("way", [by_stock_queue, by_scheduler, as_dependent, by_requeue, by_rate_limit])
def test_events_tell_of_a_job_whoever_enqueued_it(
    way: Callable[[rq.Queue], rq.job.Job], deployment: Deployment, driver: Client
) -> None:
    job = way(rq.Queue(connection=deployment.redis))
    eventually(lambda: {"job.started", "job.finished"} <= told_of(driver).get(job.id, set()))


def test_stock_rq_reads_the_jobs_of_a_group_and_of_an_execution(deployment: Deployment, driver: Client) -> None:
    gate = Gate(deployment.url)
    data = envq.Queue.prepare_data(gate.wait)
    group = rq.group.Group(deployment.redis)
    [job] = group.enqueue_many(envq.Queue(), [data])
    eventually(lambda: f"→ {job.description} {job.id}" in deployment.worker.output)  # and no claim that goes back
    [stored] = rq.group.Group.fetch(group.name, deployment.redis).get_jobs()
    assert (stored.id, type(stored), stored.func_name) == (job.id, rq.job.Job, "envq.remote.call")
    [composite] = deployment.redis.zrange(f"rq:executions:{job.id}", 0, -1)
    execution = Execution.fetch(composite.decode(), job.id, deployment.redis)  # type: ignore[union-attr]
    assert execution.job.func_name == "envq.remote.call"
    gate.open()
    assert envq.get(job, timeout=10) is None


def test_signs_of_life_are_given_while_a_job_holds_the_interpreter(deployment: Deployment, driver: Client) -> None:
    def holds() -> None:
        import ctypes

        ctypes.PyDLL(None).usleep(6_000_000)

    def sign() -> bytes | None:
        return deployment.redis.hget(f"rq:worker:{deployment.worker.executors()[0]}", "last_heartbeat")

    job = envq.Queue().enqueue(holds)
    eventually(lambda: "→" in deployment.worker.output and f"{job.id}" in deployment.worker.output)
    before = sign()
    eventually(lambda: sign() != before)
    assert job.get_status() == "started"
    assert envq.get(job, timeout=20) is None


def test_a_success_callback_that_raises_fails_the_job(driver: Client) -> None:
    # Called with job, connection and result, which it does not take.
    job = envq.Queue().enqueue(lambda: "done", on_success=envq.Callback("os.getpid"))
    with pytest.raises(envq.JobFailed, match="getpid"):
        envq.get(job, timeout=10)
    assert job.id in envq.Queue().failed_job_registry.get_job_ids(cleanup=False)


def test_info_asks_no_more_of_the_server_for_many_jobs(deployment: Deployment, driver: Client) -> None:
    def commands() -> int:
        with opened(deployment.url, None) as target:
            before: Any = target.connection.info("commandstats")
            read(target)
            after: Any = target.connection.info("commandstats")
        return sum(
            after[name]["calls"] - before.get(name, {"calls": 0})["calls"]
            for name in ("cmdstat_hgetall", "cmdstat_hmget", "cmdstat_smembers", "cmdstat_llen", "cmdstat_zcard")
            if name in after
        )

    queue = envq.Queue("nobody-listens")
    queue.enqueue("operator.add", 1, 2)
    few = commands()
    queue.enqueue_many([envq.Queue.prepare_data("operator.add", (1, 2))] * 1000)
    assert commands() == few
    queue.delete(delete_jobs=True)
