"""envq.get on a real server: waits without polling, for this execution only, and says why there is no result."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import rq
from rq.results import Result
from support.servers import Server
from support.waiting import eventually

import envq
from envq.driver import client as client_module
from envq.driver.client import Client
from envq.jobs import results
from envq.jobs.results import WINDOW
from envq.store import keys


@pytest.fixture
def unconnected() -> Iterator[None]:
    """This process as one that has not connected."""
    before = client_module.swap_default(None)
    yield
    if (client := client_module.swap_default(before)) is not None:
        client.close()


@pytest.fixture
def client(unconnected: None, redis_url: str) -> Client:
    return envq.connect(redis_url)


@envq.task
def work(x: int = 0) -> int:
    return x


def finish(job: envq.Job[Any], value: object) -> None:
    """As a worker stores a result."""
    with job.connection.pipeline() as pipeline:
        job.set_status(rq.job.JobStatus.FINISHED, pipeline=pipeline)
        Result.create(job, Result.Type.SUCCESSFUL, ttl=500, return_value=value, pipeline=pipeline)
        pipeline.execute()


def fail(job: envq.Job[Any], traceback: str, status: rq.job.JobStatus = rq.job.JobStatus.FAILED) -> None:
    """As a worker stores a failure."""
    with job.connection.pipeline() as pipeline:
        job.set_status(status, pipeline=pipeline)
        Result.create_failure(job, ttl=500, exc_string=traceback, pipeline=pipeline)
        pipeline.execute()


class Waiting:
    """A call of get on a thread."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._outcome: list[Any] = []

        def target() -> None:
            try:
                self._outcome.append(envq.get(*args, **options))
            except Exception as error:  # noqa: BLE001 - what get raises is the outcome
                self._outcome.append(error)

        self._thread = threading.Thread(target=target, daemon=True)
        self._thread.start()

    def outcome(self) -> Any:
        self._thread.join(timeout=10)
        assert self._outcome, "get still waits"
        return self._outcome[0]


def blocked(client: Client) -> bool:
    """Whether some client waits inside XREAD."""
    return any(each["cmd"] == "xread" for each in client.connection.client_list())


def test_a_result_wakes_it_and_is_given_again_as_often_as_asked(client: Client) -> None:
    job = work.enqueue()
    waiting = Waiting(job, timeout=10)
    eventually(lambda: blocked(client))
    finish(job, {"a": 1})
    assert waiting.outcome() == {"a": 1}
    assert envq.get(job, timeout=1) == envq.get(job.id, timeout=1) == {"a": 1}


def test_while_it_waits_it_sends_next_to_nothing(client: Client) -> None:
    jobs = work.map(range(100))
    waiting = Waiting(jobs, timeout=2.2)
    eventually(lambda: blocked(client))
    before = client.connection.info("commandstats")
    assert isinstance(waiting.outcome(), envq.GetTimeout)
    after = client.connection.info("commandstats")
    assert after["cmdstat_xread"]["calls"] - before["cmdstat_xread"]["calls"] <= 10


def test_many_jobs_come_in_the_order_asked_for(client: Client) -> None:
    jobs = work.map(range(4 * WINDOW + 10))
    waiting = Waiting(jobs, timeout=30)
    for number, job in reversed(list(enumerate(jobs))):
        finish(job, number)
    assert waiting.outcome() == list(range(len(jobs)))


def test_a_requeued_job_gives_its_new_result_never_the_old_one(client: Client) -> None:
    job = work.enqueue()
    fail(job, "ValueError: old")
    client.connection.zadd("rq:failed:default", {job.id: 2e9})
    job.requeue()
    with pytest.raises(envq.GetTimeout, match="queued"):
        envq.get(job, timeout=0.2)
    fetched = envq.Job.fetch(job.id)
    waiting = Waiting(fetched, timeout=10)
    finish(job, "new")
    assert waiting.outcome() == "new"
    assert envq.get(job, timeout=1) == "new"


def test_a_job_that_had_ended_when_it_was_fetched_gives_its_latest_result(client: Client) -> None:
    job = work.enqueue()
    finish(job, "first")
    finish(job, "second")
    assert envq.get(envq.Job.fetch(job.id), timeout=1) == "second"


def test_a_returned_retry_is_not_the_end(client: Client) -> None:
    job = work.enqueue()
    Result.create(job, Result.Type.RETRIED, ttl=500, return_value=rq.Retry(1))
    waiting = Waiting(job, timeout=10)
    eventually(lambda: blocked(client))
    finish(job, 1)
    assert waiting.outcome() == 1


TRACEBACK = """Traceback (most recent call last):
  File "app.py", line 1, in work
ValueError: boom
"""


def test_a_failure_carries_the_remote_traceback(client: Client) -> None:
    job = work.enqueue()
    fail(job, TRACEBACK)
    with pytest.raises(envq.JobFailed, match=rf"job {job.id} \(.*work\): ValueError: boom\n\nTraceback") as raised:
        envq.get(job, timeout=1)
    assert raised.value.remote_traceback == TRACEBACK
    assert raised.value.job_id == job.id
    assert envq.get([job], timeout=1, return_exceptions=True)[0].job_id == job.id  # type: ignore[union-attr]


def test_a_lost_worker_has_an_error_of_its_own(client: Client) -> None:
    job = work.enqueue()
    fail(job, "envq.errors.WorkerLost: the process was killed by signal 9")
    with pytest.raises(envq.WorkerLost, match="signal 9"):
        envq.get(job, timeout=1)


def test_the_first_failure_ends_the_waiting_for_the_others(client: Client) -> None:
    jobs = work.map(range(3))
    waiting = Waiting(jobs, timeout=10)
    fail(jobs[1], TRACEBACK)
    assert isinstance(waiting.outcome(), envq.JobFailed)


def cancelled(job: envq.Job[Any]) -> None:
    job.cancel()


def deleted(job: envq.Job[Any]) -> None:
    job.delete()


def stopped(job: envq.Job[Any]) -> None:
    fail(job, "Job stopped by user, work-horse terminated.", rq.job.JobStatus.STOPPED)


def finished_without_result(job: envq.Job[Any]) -> None:
    job.set_status(rq.job.JobStatus.FINISHED)


def failed_without_result(job: envq.Job[Any]) -> None:
    job.set_status(rq.job.JobStatus.FAILED)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (cancelled, envq.JobCancelled, "cancelled"),
        (deleted, envq.JobGone, "deleted or has expired"),
        (stopped, envq.JobStopped, "stopped"),
        (finished_without_result, envq.ResultNotKept, "not kept any more"),
        (failed_without_result, envq.JobFailed, "not kept any more"),
    ],
)
def test_a_job_without_a_result_ends_the_waiting_with_the_reason(
    change: Callable[[envq.Job[Any]], None], error: type[Exception], says: str, client: Client
) -> None:
    job = work.enqueue()
    waiting = Waiting(job, timeout=30)
    eventually(lambda: blocked(client))
    change(envq.Job.fetch(job.id))
    outcome = waiting.outcome()
    assert type(outcome) is error
    assert says in str(outcome)


def test_a_result_that_nobody_wanted_kept_says_so(client: Client) -> None:
    job = work.options(result_ttl=0).enqueue()
    client.connection.delete(job.key)
    with pytest.raises(envq.ResultNotKept, match="result_ttl=0"):
        envq.get(job, timeout=5)


def test_an_id_that_does_not_exist_is_gone(client: Client) -> None:
    with pytest.raises(envq.JobGone, match="no job nothing"):
        envq.get("nothing", timeout=5)


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_a_timeout_is_seconds_with_fractions_and_tells_the_status(timeout: float, client: Client) -> None:
    jobs = work.map(range(3))
    with pytest.raises(TimeoutError, match=rf"within {timeout:g} s; it is queued, and 2 others of 3"):
        envq.get(jobs, timeout=timeout)


def test_zero_takes_what_is_there(client: Client) -> None:
    job = work.enqueue()
    finish(job, 1)
    assert envq.get(job, timeout=0) == 1


def test_nothing_asked_for_is_nothing_waited_for(client: Client) -> None:
    assert envq.get([]) == []


def test_a_result_that_cannot_be_loaded_here_says_what_is_missing(client: Client) -> None:
    job = work.enqueue()
    job.set_status(rq.job.JobStatus.FINISHED)
    client.connection.xadd(f"rq:results:{job.id}", {"type": 1, "return_value": "Y25vX3N1Y2hfbW9kdWxlCkEKLg=="})
    with pytest.raises(envq.PayloadError, match="no_such_module"):
        envq.get(job, timeout=1)


@pytest.mark.usefixtures("unconnected")
def test_a_client_with_a_short_socket_timeout_waits_longer_than_that(redis_url: str) -> None:
    client = envq.connect(redis.Redis.from_url(redis_url, socket_timeout=0.2))
    job = work.enqueue()
    waiting = Waiting(job, timeout=10)
    eventually(lambda: blocked(client))
    finish(job, 1)
    assert waiting.outcome() == 1


@pytest.mark.usefixtures("unconnected")
def test_a_server_that_goes_away_and_comes_back_is_waited_for(own_server: Callable[..., Server]) -> None:
    server = own_server("--appendonly", "yes")
    client = envq.connect(server.url())
    job = work.enqueue()
    waiting = Waiting(job, timeout=30)
    eventually(lambda: blocked(client))
    server.kill()
    server.start()
    finish(envq.Job.fetch(job.id), "after all")
    assert waiting.outcome() == "after all"
    server.stop()
    with pytest.raises(envq.GetTimeout):
        envq.get(job, timeout=0.5)


def test_a_job_that_nobody_will_take_is_told_once_with_the_queues_that_are_served(
    client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "HINT_AFTER_S", 0.1)
    monkeypatch.setattr(results, "CHECK_S", 0.1)
    register(client, "default")
    job = work.options(queue="defualt").enqueue()
    said = f"job {job.id} .* waits in queue 'defualt', on which no executor listens; queues with executors: default"
    with pytest.raises(envq.GetTimeout, match=said):
        envq.get(job, timeout=0.5)
    [record] = [each for each in caplog.records if each.name == "envq"]
    assert re.match(said, record.getMessage())


def test_a_job_that_somebody_will_take_or_that_is_not_queued_is_waited_for_in_silence(
    client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "HINT_AFTER_S", 0.0)
    register(client, "default")
    for job in (work.enqueue(), work.options(queue="defualt").enqueue_in(60)):
        with pytest.raises(envq.GetTimeout) as raised:
            envq.get(job, timeout=0.2)
        assert "listens" not in str(raised.value)
    assert caplog.text == ""


def register(client: Client, queue: str) -> None:
    """As an executor does at its birth."""
    worker = keys.worker("somebody")
    client.connection.sadd(keys.WORKERS, worker)
    client.connection.sadd(keys.workers_of(queue), worker)
    client.connection.hset(worker, "queues", queue)
