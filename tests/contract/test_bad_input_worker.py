"""What reaches a worker broken fails that job in one clear sentence; the jobs behind it run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import rq
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


def test_a_name_that_nobody_declared_is_told_with_those_that_are(driver: Client) -> None:
    def reads() -> object:
        import envq

        return envq.env.modle

    envq.env.model = envq.EnvironmentVariable(dict)
    try:
        text = reason(envq.Queue().enqueue(reads))
    finally:
        del envq.env.model
    assert "NotDeclared" in text
    assert "'modle'" in text
    assert "model" in text.replace("modle", "")


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


@pytest.mark.parametrize("data", [b"", b"garbage", b"x\x9cgarbage", b"\x80\x05cno_such_module\nthing\n."])
def test_a_payload_that_does_not_unpickle(data: bytes, driver: Client, held: Callable[..., envq.Job[Any]]) -> None:
    job = held()
    driver.connection.hset(job.key, "data", data)
    push(driver, job)
    text = reason(job)
    assert "PayloadError" in text
    assert "cannot be" in text or "names no function" in text


def test_a_payload_that_is_missing(driver: Client, held: Callable[..., envq.Job[Any]]) -> None:
    job = held()
    driver.connection.hdel(job.key, "data")
    push(driver, job)
    assert "PayloadError" in reason(job)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("timeout", "0.5"),
        ("timeout", "soon"),
        ("envq_timeout", "soon"),
        ("envq_timeout", "nan"),
        ("envq_seed", "x"),
        ("status", "x"),
        ("created_at", "yesterday"),
        ("created_at", b"\xff"),
        ("enqueued_at", "\u2603"),
        ("retries_left", "many"),
        ("retry_intervals", "{"),
        ("retry_intervals", '"abc"'),
        ("result_ttl", "x"),
        ("failure_ttl", "x"),
        ("ttl", "x"),
        ("result_ttl", "9" * 20),
        ("failure_ttl", "9" * 20),
        ("ttl", "9" * 20),
        ("meta", b"\x80garbage"),
        ("dependency_ids", "{"),
        ("dependency_id", "no-such-job"),
        ("repeats_left", "x"),
        ("repeat_intervals", "{"),
        ("success_callback_name", "no_such_module.f"),
        ("failure_callback_name", "no_such_module.f"),
        ("origin", b"\xff\xfe"),
        ("description", b"\xff\xfe"),
        ("worker_name", b"\xff"),
        ("serializer", "no.such"),
        ("group_id", "no-such-group"),
        ("rate_limit_key", "k"),
        ("envq_crashes", "x"),
        ("envq_code", b"\xff"),
        ("envq_settle", "{"),
        ("envq_settle", "[]"),
    ],
)
def test_a_field_that_is_garbage_ends_that_job_alone(
    field: str, value: str | bytes, driver: Client, held: Callable[..., envq.Job[Any]]
) -> None:
    job = held()
    driver.connection.hset(job.key, mapping={"status": "queued", field: value})
    driver.connection.rpush("rq:queue:default", job.id)
    eventually(lambda: driver.connection.hget(job.key, "status") in (b"finished", b"failed"))
    if driver.connection.hget(job.key, "status") == b"failed":
        assert "\n" not in reason(job)


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


@pytest.mark.parametrize("field", ["description", "timeout", "created_at", "origin", "status", "result_ttl"])
def test_a_field_that_is_missing_ends_that_job_alone(
    field: str, driver: Client, held: Callable[..., envq.Job[Any]]
) -> None:
    job = held()
    driver.connection.hset(job.key, "status", "queued")
    driver.connection.hdel(job.key, field)
    driver.connection.rpush("rq:queue:default", job.id)
    eventually(lambda: driver.connection.hget(job.key, "status") in (b"finished", b"failed"))


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


def test_a_function_that_no_worker_can_import_is_named_with_what_to_do(driver: Client) -> None:
    for name, part in [
        ("no_such_module.f", "No module named 'no_such_module'"),
        ("operator.no_such_function", "operator has no attribute 'no_such_function'"),
        ("nodots", "nodots"),
    ]:
        job = rq.Queue(connection=driver.connection).enqueue(name)
        text = reason(envq.Job.fetch(job.id))
        assert f"cannot import '{name}'" in text
        assert part in text
        assert "envq.ship(module)" in text


def test_a_callback_that_cannot_be_imported_fails_the_job_naming_it(driver: Client) -> None:
    job = envq.Queue().enqueue(lambda: 1, on_success=envq.Callback("no_such_module.note"))
    assert "no_such_module" in reason(job)


def test_a_failure_callback_that_cannot_be_imported_does_not_hide_the_job_s_own_error(driver: Client) -> None:
    job = envq.Queue().enqueue(lambda: 1 / 0, on_failure=envq.Callback("no_such_module.note"))
    with pytest.raises(envq.JobFailed, match="division by zero"):
        envq.get(job, timeout=10)


@pytest.mark.parametrize("error", ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "StopIteration"])
def test_whatever_a_job_raises_is_its_own_failure(error: str, driver: Client) -> None:
    def raises(name: str) -> None:
        import builtins

        raise getattr(builtins, name)("from the job")

    text = reason(envq.Queue().enqueue(raises, error))
    assert error in text


def test_an_error_whose_text_raises_is_a_failure_all_the_same(driver: Client) -> None:
    def raises() -> None:
        class Nasty(Exception):
            def __str__(self) -> str:
                raise ValueError("no text")

        raise Nasty

    assert "Nasty" in reason(envq.Queue().enqueue(raises))


def test_a_result_whose_pickling_raises_is_a_failure(driver: Client) -> None:
    def gives() -> object:
        class Nasty:
            def __reduce__(self) -> Any:
                raise OSError("not to be pickled")

        return Nasty()

    assert "not to be pickled" in reason(envq.Queue().enqueue(gives))
