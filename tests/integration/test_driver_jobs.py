"""Enqueuing on a real server: what is written, that stock RQ can read and run it, and at what cost."""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
import rq
import rq.job
import rq.timeouts
from rq.exceptions import DuplicateJobError
from rq.registry import ScheduledJobRegistry

import envq
from envq.driver import client as client_module
from envq.driver.client import Client


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    """The default client of this process, as long as the test runs."""
    before = client_module.swap_default(None)
    client_module.driver_scope.close()
    new = envq.connect(redis_url)
    yield new
    client_module.driver_scope.close()
    client_module.swap_default(before)
    new.close()


@pytest.fixture
def run_jobs(client: Client) -> Callable[..., None]:
    """Work off queues with RQ's own SimpleWorker and RQ's own job class."""

    class Worker(rq.SimpleWorker):
        death_penalty_class = rq.timeouts.TimerDeathPenalty

        def _install_signal_handlers(self) -> None: ...

    def run(*names: str) -> None:
        queues = [rq.Queue(name, connection=client.connection) for name in names or ("default",)]
        Worker(queues, connection=client.connection).work(burst=True, logging_level="CRITICAL")

    return run


@envq.task
def double(x: int) -> int:
    return 2 * x


class Counter:
    """Has a state of its own."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, number: int) -> int:
        self.count += number
        return self.count

    def __call__(self, number: int) -> int:
        return self.add(number)

    @classmethod
    def named(cls) -> str:
        return cls.__name__


def nested(text: str) -> Callable[..., str]:
    def inner(suffix: str = "!") -> str:
        return text + suffix

    return inner


def note(job: Any, connection: redis.Redis, *_: Any) -> None:
    connection.set(f"noted:{job.id}", "yes")


# what can be enqueued


@pytest.mark.parametrize(
    ("function", "args", "result"),
    [
        (double, (2,), 4),
        ("operator.add", (1, 2), 3),
        (len, ("four",), 4),
        (lambda x: x + 1, (1,), 2),
        (nested("hello"), (), "hello!"),
        (Counter().add, (3,), 3),
        (Counter(), (3,), 3),
        (Counter.named, (), "Counter"),
        (functools.partial(double, 5), (), 10),
        (functools.partial(nested("a"), suffix="b"), (), "ab"),
        ([3, 1].index, (1,), 1),
    ],
)
def test_any_callable_runs_on_a_plain_rq_worker(
    function: Any, args: tuple[Any, ...], result: object, run_jobs: Callable[..., None]
) -> None:
    job = envq.Queue().enqueue(function, *args)
    run_jobs()
    assert envq.get(job, timeout=5) == result


def test_objects_with_a_state_are_fresh_for_each_job(run_jobs: Callable[..., None]) -> None:
    counter = Counter()
    lock = threading.Lock()
    jobs = [envq.Queue().enqueue(counter.add, 1) for _ in range(2)]
    jobs += [envq.Queue().enqueue(functools.partial(nested("a"), suffix=str(n))) for n in range(2)]
    run_jobs()
    assert envq.get(jobs, timeout=5) == [1, 1, "a0", "a1"]
    with pytest.raises(envq.PayloadError, match="lock"):
        envq.Queue().enqueue(functools.partial(print, lock))


def test_arguments_of_classes_that_only_the_driver_has_travel_with_the_job(run_jobs: Callable[..., None]) -> None:
    class Local:
        value = 7

    job = envq.Queue().enqueue(getattr, Local(), "value")
    run_jobs()
    assert envq.get(job, timeout=5) == 7


@pytest.mark.parametrize("given", [(threading.Lock(),), (redis.Redis(),)])
def test_an_argument_that_cannot_travel_is_named_with_what_to_do(given: tuple[Any, ...], client: Client) -> None:
    with pytest.raises(envq.PayloadError, match=r"argument 0(.|\n)*EnvironmentVariable"):
        envq.Queue().enqueue(print, *given)
    assert client.connection.llen("rq:queue:default") == 0


def test_arguments_over_the_limit_are_refused(client: Client) -> None:
    with pytest.raises(envq.PayloadTooLarge, match="argument 0"):
        envq.Queue().enqueue(len, b"x" * (client.settings.limits.max_bytes + 1))


# the record


def test_stock_rq_reads_a_job_whose_code_travels_without_envq(client: Client, run_jobs: Callable[..., None]) -> None:
    job = envq.Queue().enqueue(nested("secret argument"), "x", result_ttl=50)
    stored = rq.job.Job.fetch(job.id, connection=client.connection)
    assert stored.func_name == "envq.remote.call"
    assert stored.instance is None
    digest, payload = stored.args
    assert (digest, type(payload)) == (job.code_digest, bytes)
    assert stored.description.endswith("nested.<locals>.inner")
    assert (stored.timeout, stored.result_ttl, stored.origin) == (180, 50, "default")
    run_jobs()
    script = f"""
    import sys, redis, rq.job
    job = rq.job.Job.fetch("{job.id}", connection=redis.Redis.from_url("{client.settings.url}"))
    print(job.return_value(), job.get_status().value, job.func_name, len(job.args))
    sys.exit("envq" in sys.modules or "cloudpickle" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["secret", "argumentx", "finished", "envq.remote.call", "2"]


def test_an_importable_function_is_written_as_rq_would(client: Client) -> None:
    ours = envq.Queue().enqueue(double, 21)
    theirs = rq.Queue(connection=client.connection).enqueue(double.__wrapped__, 21)
    mine, stock = (client.connection.hgetall(f"rq:job:{job.id}") for job in (ours, theirs))
    assert pickle.loads(mine[b"data"]) == (f"{__name__}.double", None, (21,), {})
    assert mine.keys() <= stock.keys()
    for field in (b"origin", b"status", b"timeout"):
        assert mine[field] == stock[field]
    assert mine[b"description"] == f"{__name__}.double".encode()  # never the arguments


def test_what_stock_rq_enqueued_is_a_job_of_ours(client: Client, run_jobs: Callable[..., None]) -> None:
    stock = rq.Queue(connection=client.connection).enqueue("operator.add", 1, 2, job_timeout=9)
    job = envq.Job.fetch(stock.id)
    assert (job.func_name, job.args, job.time_limit, job.on_crash, job.code_digest) == (
        "operator.add", (1, 2), 9.0, "requeue", "",
    )  # fmt: skip
    assert repr(job) == f"Job({stock.id!r}, operator.add(1, 2), queued)"
    run_jobs()
    assert envq.get(job, timeout=5) == 3


def test_what_envq_adds_survives_reading_and_writing_again(client: Client) -> None:
    job = double.options(timeout=0.5, on_crash="fail", seed=7).enqueue(1)
    again = envq.Job.fetch(job.id)
    assert (again.time_limit, again.timeout, again.on_crash, again.seed) == (0.5, 1, "fail", 7)
    again.save()
    assert envq.Job.fetch(job.id).time_limit == 0.5
    rq.job.Job.fetch(job.id, connection=client.connection).save()
    assert envq.Job.fetch(job.id).time_limit == 0.5


def test_the_end_of_an_execution_does_not_write_the_call_again(client: Client) -> None:
    job = envq.Job.fetch(double.enqueue(1).id)
    assert "data" in job.to_dict()
    assert "data" not in job.to_dict(include_meta=False, include_result=False)


def test_large_calls_are_compressed_and_read_back(client: Client) -> None:
    job = envq.Queue().enqueue(len, "x" * 50_000)
    assert client.connection.hstrlen(f"rq:job:{job.id}", "data") < 1000
    assert rq.job.Job.fetch(job.id, connection=client.connection).args == ("x" * 50_000,)


def test_rq_s_options_keep_working(client: Client, run_jobs: Callable[..., None]) -> None:
    queue = envq.Queue("mail")
    first = queue.enqueue(double, 1, job_id="first", meta={"a": 1}, ttl=100, failure_ttl=60, description="mine")
    second = queue.enqueue(double, 2, depends_on=first, on_success=envq.Callback(note))
    third = queue.enqueue(double, 3, at_front=True, retry=envq.Retry(4, interval=[1, 2]))
    assert queue.job_ids == [third.id, first.id]
    assert second.get_status() == "deferred"
    assert 0 < client.connection.ttl("rq:job:first") <= 100
    stored = envq.Job.fetch("first")
    assert (stored.meta, stored.ttl, stored.failure_ttl, stored.description) == ({"a": 1}, 100, 60, "mine")
    assert envq.Job.fetch(third.id).retry_intervals == [1, 2, 2, 2]
    run_jobs("mail")
    assert envq.get([first, second, third], timeout=5) == [2, 4, 6]
    assert client.connection.get(f"noted:{second.id}") == b"yes"


def test_unique_jobs_pipelines_rate_limits_and_groups_keep_working(
    client: Client, run_jobs: Callable[..., None]
) -> None:
    queue = envq.Queue()
    queue.enqueue(double, 1, job_id="only", unique=True)
    with pytest.raises(DuplicateJobError):
        queue.enqueue(double, 1, job_id="only", unique=True)
    with pytest.raises(ValueError, match="job_id"):
        double.options(unique=True).enqueue(1)
    with client.connection.pipeline() as pipeline:
        piped = double.options(pipeline=pipeline).enqueue(2)
        assert queue.count == 1
        pipeline.execute()
    limited = double.options(rate_limit=envq.RateLimit("api", 1)).map([3, 4])
    assert [job.get_status() for job in limited] == ["queued", "rate_limited"]
    many = [envq.Queue.prepare_data(nested("a"), ("b",)), envq.Queue.prepare_data(double, (1,), timeout=0.5)]
    grouped = envq.Group(client.connection).enqueue_many(queue, many)
    assert grouped[1].time_limit == 0.5
    assert all(job.group_id for job in grouped)
    run_jobs()
    assert envq.get([piped, *limited, *grouped], timeout=5) == [4, 6, 8, "ab", 2]


@pytest.mark.parametrize("later", [60, timedelta(seconds=60)])
def test_jobs_for_later_are_on_rq_s_schedule_and_keep_their_code(later: Any, client: Client) -> None:
    function = envq.task(nested("later"))
    job = function.enqueue_in(later)
    registry = ScheduledJobRegistry(queue=rq.Queue(connection=client.connection))
    assert registry.get_job_ids() == [job.id]
    assert job.get_status() == "scheduled"
    far = function.enqueue_in(timedelta(days=1000))
    assert client.connection.ttl(client.keys.code(far.code_digest)) > timedelta(days=1300).total_seconds()


def test_code_that_redis_lost_is_sent_again_and_lives_longer_with_each_job(client: Client) -> None:
    function = envq.task(nested("x"))
    key = client.keys.code(function.enqueue().code_digest)
    client.connection.expire(key, 5)
    function.enqueue()
    assert client.connection.ttl(key) > 5
    client.connection.delete(key)
    function.map([])
    function.starmap([()])
    assert client.connection.exists(key)
    function.options(failure_ttl=-1).enqueue()
    assert client.connection.ttl(key) == -1


def test_a_namespace_stands_before_queues_and_code(redis_url: str, run_jobs: Callable[..., None]) -> None:
    other = Client(redis_url, namespace="b")
    queue = envq.Queue("mail", client=other)
    job = queue.enqueue(nested("b"))
    assert (queue.name, job.origin) == ("b:mail", "b:mail")
    assert other.connection.exists(f"envq:b:code:{job.code_digest}")
    run_jobs("b:mail")
    assert envq.get(job, timeout=5) == "b!"
    other.close()


def test_is_async_false_runs_here_with_variables_apart_from_the_driver_s(client: Client) -> None:
    envq.env.numbers = envq.EnvironmentVariable(lambda: [1])
    envq.env.numbers.append("driver's")

    def append() -> list[Any]:
        envq.env.numbers.append("job's")
        return envq.env.numbers

    queue = envq.Queue(is_async=False)
    jobs = [queue.enqueue(append) for _ in range(2)]
    assert envq.get(jobs, timeout=5) == [[1, "job's"]] * 2
    assert [job.return_value() for job in jobs] == [[1, "job's"]] * 2
    assert envq.env.numbers == [1, "driver's"]
    failed = queue.enqueue(threading.Lock)
    assert failed.get_status() == "failed"
    with pytest.raises(envq.JobFailed, match="PayloadError"):
        envq.get(failed, timeout=5)


def test_a_connection_that_decodes_replies_is_refused(redis_url: str) -> None:
    decoding = redis.Redis.from_url(redis_url, decode_responses=True)
    for refuse in (lambda: envq.Queue(connection=decoding), lambda: envq.connect(decoding)):
        with pytest.raises(envq.ConfigurationError, match="decode_responses"):
            refuse()


# cost


def test_enqueuing_takes_one_round_trip_and_in_bulk_one_for_hundreds(client: Client) -> None:
    by_value = envq.task(nested("x"))
    double.enqueue(1)
    by_value.enqueue()
    with commands_of(client) as sent:
        double.enqueue(1)
        assert len(sent) == 1
        by_value.enqueue()
        assert len(sent) == 2
        jobs = double.map(range(1200))
        assert len(sent) == 5
    assert len({job.id for job in jobs}) == 1200
    assert envq.Queue().job_ids[-1200:] == [job.id for job in jobs]


def commands_of(client: Client) -> Any:
    """Every command the client sends while the block runs."""
    sent: list[Any] = []
    execute = client.connection.execute_command

    def noting(*args: Any, **options: Any) -> Any:
        sent.append(args)
        return execute(*args, **options)

    class Noting:
        def __enter__(self) -> list[Any]:
            client.connection.execute_command = noting  # type: ignore[method-assign]
            return sent

        def __exit__(self, *_: object) -> None:
            client.connection.execute_command = execute  # type: ignore[method-assign]

    return Noting()


def test_a_repeated_enqueue_after_a_lost_reply_makes_no_second_job(client: Client) -> None:
    execute = client.connection.execute_command

    def twice(*args: Any, **options: Any) -> Any:
        execute(*args, **options)
        return execute(*args, **options)

    double.enqueue(0)
    client.connection.execute_command = twice  # type: ignore[method-assign]
    double.map([1, 2])
    assert envq.Queue().count == 3


@pytest.mark.usefixtures("client")
def test_a_queue_on_the_default_client_s_connection_is_in_its_namespace(redis_url: str, namespace: str) -> None:
    client = envq.connect(redis_url, namespace=namespace)
    assert envq.Queue("mail", connection=client.connection).name == f"{namespace}:mail"
    client.close()
