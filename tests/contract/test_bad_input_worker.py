"""What reaches a worker broken fails that job in one clear sentence; the jobs behind it run."""

from __future__ import annotations

import functools
import os
import pickle
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
import rq
from support.bad_input import Row, row
from support.deployment import Deployment
from support.waiting import eventually

import envq
from envq.driver.client import Client

WORKER = ("high", "default", "--kill-grace", "1")


@pytest.fixture(autouse=True)
def the_worker_goes_on(deployment: Deployment, driver: Client) -> Any:
    """Whatever a test does: other jobs go on, in the same process, and nothing is left claimed."""
    before = deployment.worker.executors()
    yield
    assert envq.get(envq.Queue().enqueue(lambda: "next"), timeout=10) == "next"
    assert deployment.worker.executors() == before, "the executor was replaced"
    eventually(lambda: not list(deployment.redis.scan_iter("envq:default:claims:*", count=1000)))
    assert deployment.redis.zcard("rq:wip:default") == 0


@pytest.fixture
def held() -> Callable[..., envq.Job[Any]]:
    """Put a job aside, to be broken before it is pushed with `push`."""

    def make(function: Callable[..., Any] = lambda: "fine", **options: Any) -> envq.Job[Any]:
        job = envq.Queue().create_job(function, **options)
        job.origin = "default"
        job.save()
        return job

    return make


def push(client: Client, job: envq.Job[Any]) -> None:
    client.connection.sadd("rq:queues", "rq:queue:default")
    client.connection.hset(job.key, "status", "queued")
    client.connection.rpush("rq:queue:default", job.id)


def reason(job: envq.Job[Any]) -> str:
    """The first line of the error of a job that failed."""
    with pytest.raises(envq.JobFailed) as raised:
        envq.get(job, timeout=10)
    return str(raised.value).splitlines()[0]


CALL = "envq.remote.call"
SUM = "operator.add"


class Loads:
    """A pickle that calls something when it is loaded."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._reduced = (function, arguments)

    def __reduce__(self) -> Any:
        return self._reduced


# Fields of a job that would else run; None: the field is missing.
RECORDS: dict[str, dict[str, Any]] = {
    "record-data-empty": {"data": b""},
    "record-data-garbage": {"data": b"garbage"},
    "record-data-compressed-garbage": {"data": b"x\x9cgarbage"},
    "record-data-missing": {"data": None},
    "record-data-module": {"data": b"\x80\x05cno_such_module\nthing\n."},
    "record-data-number": {"data": pickle.dumps(3)},
    "record-data-function": {"data": pickle.dumps((3, None, (), {}))},
    "record-data-keywords": {"data": pickle.dumps((SUM, None, (), 3))},
    "record-data-digest": {"data": pickle.dumps((CALL, None, (3, b""), {}))},
    "record-data-exit": {"data": pickle.dumps(Loads(sys.exit, 3))},
    "record-timeout-fraction": {"timeout": "0.5"},
    "record-timeout-text": {"timeout": "soon"},
    "record-exact-timeout-text": {"envq_timeout": "soon"},
    "record-seed-text": {"envq_seed": "x"},
    "record-status-unknown": {"status": "x"},
    "record-date-text": {"created_at": "yesterday"},
    "record-date-bytes": {"created_at": b"\xff"},
    "record-retries-text": {"retries_left": "many"},
    "record-intervals-broken": {"retry_intervals": "{"},
    "record-result-ttl-text": {"result_ttl": "x"},
    "record-result-ttl-huge": {"result_ttl": "9" * 20},
    "record-ttl-text": {"ttl": "x"},
    "record-meta-garbage": {"meta": b"\x80garbage"},
    "record-meta-poison": {"meta": pickle.dumps(Loads(os._exit, 3))},
    "record-dependencies-broken": {"dependency_ids": "{"},
    "record-repeats-text": {"repeats_left": "x"},
    "record-callback-missing": {"success_callback_name": "no_such_module.f"},
    "record-failure-callback-missing": {"failure_callback_name": "no_such_module.f"},
    "record-origin-bytes": {"origin": b"\xff\xfe"},
    "record-description-bytes": {"description": b"\xff\xfe"},
    "record-group-unknown": {"group_id": "no-such-group"},
    "record-rate-limit-unknown": {"rate_limit_key": "no-such-limit"},
    "record-crashes-text": {"envq_crashes": "x"},
    "record-settle-broken": {"envq_settle": "{"},
    "record-without-description": {"description": None},
    "record-without-timeout": {"timeout": None},
    "record-without-created-at": {"created_at": None},
    "record-without-origin": {"origin": None},
    "record-without-status": {"status": None},
}


@pytest.mark.parametrize("broken", RECORDS)
def test_a_broken_record_gets_what_the_table_says(
    broken: str, driver: Client, held: Callable[..., envq.Job[Any]], request: pytest.FixtureRequest
) -> None:
    if "unless RQ reads it" in row(broken).gets and "through-rq" in request.node.name:
        pytest.skip("RQ reads it")
    job = held()
    driver.connection.hset(job.key, "status", "queued")
    for field, value in RECORDS[broken].items():
        if value is None:
            driver.connection.hdel(job.key, field)
        else:
            driver.connection.hset(job.key, field, value)
    driver.connection.rpush("rq:queue:default", job.id)
    assert_told(row(broken), driver, job)


def assert_told(expected: Row, driver: Client, job: envq.Job[Any]) -> None:
    """The job ran, or failed with the sentence of the row."""
    eventually(lambda: driver.connection.hget(job.key, "status") in (b"finished", b"failed"))
    if expected.gets.startswith("runs"):
        assert driver.connection.hget(job.key, "status") == b"finished"
    else:
        expected.assert_told(reason(job))


CODES: dict[str, Callable[[bytes], bytes | list[bytes] | None]] = {
    "record-code-missing": lambda _: None,
    "record-code-truncated": lambda code: code[:-3],
    "record-code-garbage": lambda _: b"garbage",
    "record-code-list": lambda _: [b"garbage"],
    "record-code-python": lambda code: re.sub(rb'"python": "[^"]+"', b'"python": "2.7"', code),
}


@pytest.mark.parametrize("broken", CODES)
def test_broken_code_gets_what_the_table_says(
    broken: str, deployment: Deployment, driver: Client, held: Callable[..., envq.Job[Any]]
) -> None:
    here = [broken, deployment.worker.pid]  # code that no executor has loaded before
    job = held(lambda: here)
    key = driver.keys.code(driver.connection.hget(job.key, "envq_code").decode())  # type: ignore[union-attr]
    code = CODES[broken](driver.connection.get(key) or b"")
    driver.connection.delete(key)
    if isinstance(code, list):
        driver.connection.rpush(key, *code)
    elif code is not None:
        driver.connection.set(key, code)
    push(driver, job)
    assert_told(row(broken), driver, job)


def functions() -> dict[str, Callable[[], Any]]:
    """Jobs that go wrong; as they are defined inside a function, they travel by value."""

    def raises(error: str) -> Callable[[], None]:
        def job() -> None:
            import builtins

            raise getattr(builtins, error)("from the job")

        return job

    def returns_lock() -> object:
        import threading

        return threading.Lock()

    def yields() -> Any:
        yield 1

    def returns_nasty() -> object:
        class Nasty:
            def __reduce__(self) -> Any:
                raise OSError("not to be pickled")

        return Nasty()

    def raises_nasty() -> None:
        class Nasty(Exception):
            def __str__(self) -> str:
                raise ValueError("no text")

        raise Nasty

    return {
        "job-variable-unknown": lambda: envq.env.modle,
        "job-result-lock": returns_lock,
        "job-result-generator": yields,
        "job-result-deep": lambda: functools.reduce(lambda value, _: [value], range(100_000), 0),
        "job-result-pickling-raises": returns_nasty,
        "job-error-without-text": raises_nasty,
        "job-error-system-exit": raises("SystemExit"),
        "job-error-keyboard-interrupt": raises("KeyboardInterrupt"),
        "job-error-generator-exit": raises("GeneratorExit"),
        "job-error-stop-iteration": raises("StopIteration"),
    }


JOBS: dict[str, Callable[[Client], envq.Job[Any]]] = {
    "job-module-missing": lambda driver: stock(driver, "no_such_module.f"),
    "job-name-missing": lambda driver: stock(driver, "operator.no_such_function"),
    "job-name-without-dots": lambda driver: stock(driver, "nodots"),
    "job-callback-missing": lambda _: envq.Queue().enqueue(lambda: 1, on_success=envq.Callback("no_such_module.note")),
}


def stock(driver: Client, name: str) -> envq.Job[Any]:
    return envq.Job.fetch(rq.Queue(connection=driver.connection).enqueue(name).id)


@pytest.mark.parametrize("mistake", [*functions(), *JOBS])
def test_a_job_with_a_mistake_gets_what_the_table_says(mistake: str, driver: Client) -> None:
    envq.env.model = envq.EnvironmentVariable(dict)
    try:
        job = JOBS[mistake](driver) if mistake in JOBS else envq.Queue().enqueue(functions()[mistake])
        row(mistake).assert_told(reason(job))
    finally:
        del envq.env.model


def test_a_dependency_that_nobody_knows_counts_as_met(driver: Client) -> None:
    job = envq.task(lambda: "fine").options(depends_on="no-such-job").enqueue()
    assert envq.get(job, timeout=10) == "fine"


def test_a_forgotten_return_of_a_reset_is_a_rebuild_and_a_warning(deployment: Deployment) -> None:
    def reset(value: list[int]) -> None:
        value.clear()

    def use() -> list[int]:
        import envq

        envq.env.forgetful.append(1)
        return list(envq.env.forgetful)

    envq.env.forgetful = envq.EnvironmentVariable(lambda: [0], reset)
    try:
        assert envq.get([envq.Queue().enqueue(use) for _ in range(3)], timeout=10) == [[0, 1]] * 3
    finally:
        del envq.env.forgetful
    warning = next(line for line in deployment.worker.output.splitlines() if "WARNING" in line and "forgetful" in line)
    assert "None" in warning


def test_an_initializer_that_raises_on_the_worker_only_fails_the_jobs_that_read_it(driver: Client) -> None:
    def make() -> object:
        import os

        if "PYTEST_CURRENT_TEST" not in os.environ:
            raise FileNotFoundError("/models/big.bin is not on this machine")
        return object()

    def reads() -> object:
        import envq

        return envq.env.on_workers

    envq.env.on_workers = envq.EnvironmentVariable(make)
    try:
        with pytest.raises(envq.JobFailed) as raised:
            envq.get(envq.Queue().enqueue(reads), timeout=10)
        assert envq.get(envq.Queue().enqueue(lambda: "unaffected"), timeout=10) == "unaffected"
    finally:
        del envq.env.on_workers
    assert "EnvironmentVariableFailed: environment variable 'on_workers'" in str(raised.value).splitlines()[0]
    assert "FileNotFoundError: /models/big.bin is not on this machine" in str(raised.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"retries_left": "1", "retry_intervals": '"abc"'},
        {"retries_left": "1", "retry_intervals": '["x"]'},
        {"retries_left": "1", "retry_intervals": "[99999999999999]"},
        {"failure_ttl": "9" * 20},
        {"group_id": "no-such-group"},
    ],
    ids=lambda fields: "-".join(fields.values())[:20],
)
def test_a_record_that_the_failure_of_its_job_cannot_be_stored_with_ends_that_job_alone(
    fields: dict[str, str], driver: Client, held: Callable[..., envq.Job[Any]]
) -> None:
    job = held(lambda: 1 / 0)
    driver.connection.hset(job.key, mapping={"status": "queued", **fields})
    driver.connection.rpush("rq:queue:default", job.id)
    eventually(lambda: driver.connection.hget(job.key, "status") == b"failed")
    assert job.id in envq.Queue().failed_job_registry.get_job_ids(cleanup=False)


def test_a_record_that_a_result_cannot_be_stored_with_ends_that_job_alone(
    driver: Client, held: Callable[..., envq.Job[Any]]
) -> None:
    job = held()
    broken = {"repeats_left": "1", "repeat_intervals": '"abc"'}
    driver.connection.hset(job.key, mapping={"status": "queued", **broken})
    driver.connection.rpush("rq:queue:default", job.id)
    eventually(lambda: driver.connection.hget(job.key, "status") == b"failed")
    assert "the record of job" in reason(job)


@pytest.mark.parametrize("job_id", ["no-such-job", b"\xff\xfe", "with:colon", "x" * 1000, "", "with space\n"])
def test_an_id_without_a_record_is_dropped(job_id: str | bytes, driver: Client) -> None:
    driver.connection.rpush("rq:queue:default", job_id)
    eventually(lambda: driver.connection.llen("rq:queue:default") == 0)


@pytest.mark.parametrize("job_id", [b"\xff\xfe", "ä€😀".encode()[:-1], b"\xed\xa0\x80", b"\xc0\xaf", b"x\xc3y\xa9"])
def test_a_job_whose_id_is_no_text_is_refused_by_itself(
    job_id: bytes, deployment: Deployment, driver: Client, held: Callable[..., envq.Job[Any]]
) -> None:
    job, behind = held(), held()
    key = b"rq:job:" + job_id
    driver.connection.copy(job.key, key)
    driver.connection.hset(key, "status", "queued")
    driver.connection.rpush("rq:queue:default", job_id, behind.id)
    before = deployment.worker.executors()
    assert envq.get(behind, timeout=10) == "fine"
    assert driver.connection.hget(key, "status") == b"failed"
    assert f"job {job_id!r} is refused: its id is no UTF-8 text" in deployment.worker.output
    assert deployment.worker.executors() == before
    driver.connection.delete(key)


def test_an_id_that_is_text_of_any_kind_is_left_alone(driver: Client, held: Callable[..., envq.Job[Any]]) -> None:
    job = held()
    for job_id in ("with:colon", "with space", "ä", "€", "😀", "\U0010ffff"):
        key = f"rq:job:{job_id}"
        driver.connection.copy(job.key, key)
        driver.connection.hset(key, "status", "queued")
        driver.connection.rpush("rq:queue:default", job_id)
        eventually(lambda key=key: driver.connection.hget(key, "status") == b"finished")


def test_ids_under_which_something_else_is_stored_are_dropped(driver: Client) -> None:
    for number in range(3):
        driver.connection.set(f"rq:job:no-hash-{number}", "text")
    jobs = [envq.Queue().enqueue(lambda: "ran")]
    driver.connection.rpush("rq:queue:default", *(f"no-hash-{number}" for number in range(3)))
    driver.connection.rpush("rq:queue:high", "no-hash-0")
    jobs.append(envq.Queue().enqueue(lambda: "ran"))
    assert envq.get(jobs, timeout=10) == ["ran", "ran"]


@pytest.mark.parametrize("job_id", ["with-dash_and-7", "x" * 400])
def test_ids_of_all_lengths_run(job_id: str, driver: Client) -> None:
    job = envq.task(lambda: 1).options(job_id=job_id).enqueue()
    assert envq.get(job, timeout=10) == 1


def test_an_id_that_is_twice_in_the_queue_does_not_stop_it(driver: Client, held: Callable[..., envq.Job[Any]]) -> None:
    job = held()
    driver.connection.rpush("rq:queue:default", job.id, job.id)
    assert envq.get(job, timeout=10) == "fine"
    eventually(lambda: driver.connection.llen("rq:queue:default") == 0)


def test_a_failure_callback_that_cannot_be_imported_does_not_hide_the_job_s_own_error(driver: Client) -> None:
    job = envq.Queue().enqueue(lambda: 1 / 0, on_failure=envq.Callback("no_such_module.note"))
    with pytest.raises(envq.JobFailed, match="division by zero"):
        envq.get(job, timeout=10)
