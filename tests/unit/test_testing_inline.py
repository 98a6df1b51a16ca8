"""envq.testing.inline(): the rules of a worker, in the test's own process, without a server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import rq

import envq
import envq.testing
from envq.driver.coroutines import CoroutineRunner
from envq.driver.scope import DriverScope
from envq.environment import bind, env
from envq.testing import Inline


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> Iterator[Inline]:
    monkeypatch.setenv("ENVQ_URL", "redis://127.0.0.1:1/0")  # nobody listens there
    with envq.testing.inline() as inside:
        yield inside


def test_without_a_reinitializer_every_job_gets_a_fresh_value() -> None:
    env.numbers = envq.EnvironmentVariable(lambda: [1, 2, 3])

    @envq.task
    def append() -> list[int]:
        env.numbers.append(4)
        return env.numbers

    assert envq.get([append.enqueue() for _ in range(3)]) == [[1, 2, 3, 4]] * 3


def test_a_reinitializer_puts_the_same_object_back() -> None:
    def zero(array: list[int]) -> list[int]:
        array[:] = [0] * len(array)
        return array

    env.array = envq.EnvironmentVariable(lambda: [0] * 4, zero)

    @envq.task
    def write(index: int) -> list[int]:
        env.array[index] = 1
        return list(env.array)

    assert envq.get(write.map(range(3))) == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]


def test_the_first_job_sees_what_the_initializer_made() -> None:
    env.counter = envq.EnvironmentVariable(lambda: 0, lambda x: x + 1)

    @envq.task
    def read() -> int:
        return env.counter

    assert envq.get([read.enqueue() for _ in range(3)]) == [0, 1, 2]


def test_a_job_that_fails_is_reset_after_as_well() -> None:
    env.numbers = envq.EnvironmentVariable(lambda: [1])

    @envq.task
    def spoil() -> None:
        env.numbers.append("spoiled")
        raise ValueError("boom")

    @envq.task
    def read() -> list[int]:
        return env.numbers

    with pytest.raises(envq.JobFailed, match="ValueError: boom") as raised:
        envq.get(spoil.enqueue())
    assert isinstance(raised.value.__cause__, ValueError)
    assert 'env.numbers.append("spoiled")' not in str(raised.value)
    assert "in spoil" in raised.value.remote_traceback
    assert envq.get(read.enqueue()) == [1]


def test_the_driver_s_copy_is_apart_from_the_jobs() -> None:
    env.numbers = envq.EnvironmentVariable(lambda: [1])
    env.numbers.append("driver's")

    @envq.task
    def append() -> list[Any]:
        env.numbers.append("job's")
        return env.numbers

    assert envq.get(append.enqueue()) == [1, "job's"]
    assert env.numbers == [1, "driver's"]


def test_unused_variables_are_neither_built_nor_reset() -> None:
    calls: list[str] = []
    env.used = envq.EnvironmentVariable(lambda: calls.append("build") or [], lambda x: calls.append("reset") or x)
    env.unused = envq.EnvironmentVariable(lambda: pytest.fail("built"))

    @envq.task
    def use() -> int:
        return len(env.used)

    @envq.task
    def nothing() -> None: ...

    envq.get([use.enqueue(), nothing.enqueue(), use.enqueue()])
    assert calls == ["build", "reset", "reset"]


def test_a_job_that_runs_another_does_not_show_it_what_it_changed() -> None:
    env.numbers = envq.EnvironmentVariable(lambda: [1])

    @envq.task
    def inner() -> list[int]:
        return env.numbers

    @envq.task
    def outer() -> tuple[list[int], list[int]]:
        env.numbers.append(2)
        return envq.get(inner.enqueue()), env.numbers

    assert envq.get(outer.enqueue()) == ([1], [1, 2])


def test_a_failing_initializer_fails_the_job_that_reads_it() -> None:
    env.broken = envq.EnvironmentVariable(lambda: 1 / 0)

    @envq.task
    def read() -> object:
        return env.broken

    with pytest.raises(envq.JobFailed, match=r"EnvironmentVariableFailed(.|\n)*ZeroDivisionError"):
        envq.get(read.enqueue())


def test_a_name_nobody_declared_fails_the_job_with_those_that_are() -> None:
    env.known = envq.EnvironmentVariable(list)

    @envq.task
    def read() -> object:
        return env.typo

    with pytest.raises(envq.JobFailed, match=r"NotDeclared.*typo.*known"):
        envq.get(read.enqueue())


def test_a_job_that_declares_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    env.x = envq.EnvironmentVariable(lambda: 1)

    @envq.task
    def declare() -> int:
        env.x = envq.EnvironmentVariable(lambda: 2)
        return env.x

    assert envq.get(declare.enqueue()) == 1
    assert "other code" in caplog.text


def test_arguments_and_results_are_copies_as_they_would_be_on_their_way() -> None:
    kept: list[list[int]] = []

    @envq.task
    def keep(numbers: list[int]) -> list[int]:
        kept.append(numbers)
        numbers.append(2)
        return numbers

    given = [1]
    result = envq.get(keep.enqueue(given))
    assert (given, result) == ([1], [1, 2])
    assert result is not kept[0]


def test_what_cannot_travel_fails_here_too() -> None:
    @envq.task
    def lock() -> object:
        return threading.Lock()

    @envq.task
    def take(_: object) -> None: ...

    with pytest.raises(envq.JobFailed, match=r"PayloadError.*lock"):
        envq.get(lock.enqueue())
    with pytest.raises(envq.PayloadError, match=r"argument 0(.|\n)*EnvironmentVariable"):
        take.enqueue(threading.Lock())


def test_coroutines_run_on_one_loop_also_inside_a_running_one() -> None:
    @envq.task
    async def loop_id() -> int:
        await asyncio.sleep(0)
        return id(asyncio.get_running_loop())

    async def web_app() -> int:
        return envq.get(loop_id.enqueue())

    assert envq.get(loop_id.enqueue()) == envq.get(loop_id.enqueue()) == asyncio.run(web_app())


def test_coroutines_get_a_new_loop_where_somebody_closed_theirs() -> None:
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    runner = CoroutineRunner()
    closed = runner.run(loop())
    closed.close()
    assert runner.run(loop()) is not closed
    runner.close()


def test_a_job_knows_itself_and_its_meta(inline: Inline) -> None:
    @envq.task
    def note() -> str:
        job = rq.get_current_job()
        assert job is not None
        job.meta["seen"] = True
        job.save_meta()
        return job.id

    job = note.enqueue()
    assert envq.get(job) == job.id
    assert job.meta == {"seen": True}
    assert envq.Job.fetch(job.id) is job
    assert envq.get(job.id) == job.id
    assert inline.jobs == [job]


def test_what_is_enqueued_for_later_runs_when_the_test_says_so(inline: Inline) -> None:
    ran: list[int] = []

    @envq.task
    def later(x: int) -> int:
        ran.append(x)
        return x

    job = later.enqueue_in(3600, 1)
    with pytest.raises(envq.GetTimeout, match="scheduled"):
        envq.get(job, timeout=5)
    assert ran == []
    assert inline.run_scheduled() == [job]
    assert envq.get(job) == 1
    assert inline.run_scheduled() == []


def test_retries_dependencies_and_callbacks_work() -> None:
    tries: list[int] = []

    @envq.task(retry=2)
    def flaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("not yet")
        return len(tries)

    @envq.task
    def after() -> str:
        return "after"

    done = flaky.enqueue()
    assert envq.get(done) == 3
    assert envq.get(after.options(depends_on=done).enqueue()) == "after"
    assert after.options(depends_on="nobody").enqueue().get_status() == "deferred"


def test_queues_take_any_callable_and_rq_s_options() -> None:
    queue = envq.Queue("mail")
    assert envq.get(queue.enqueue(lambda x: x + 1, 1)) == 2
    assert envq.get(queue.enqueue("operator.add", 1, 2)) == 3
    assert envq.get(queue.enqueue([3, 1].index, 1)) == 1
    job = queue.enqueue(print, "text", job_id="mine", meta={"a": 1}, job_timeout=2.5, result_ttl=9)
    assert (job.id, job.meta, job.time_limit, job.result_ttl, job.origin) == ("mine", {"a": 1}, 2.5, 9, "mail")


def test_results_come_in_the_order_asked_for_and_exceptions_in_their_place() -> None:
    @envq.task
    def divide(x: int) -> float:
        return 1 / x

    jobs = divide.map([1, 0, 2])
    values = envq.get(jobs, return_exceptions=True)
    assert (values[0], values[2]) == (1, 0.5)
    assert isinstance(values[1], envq.JobFailed)
    with pytest.raises(envq.JobFailed):
        envq.get(jobs)


def test_a_removed_variable_is_torn_down_and_gone_for_the_next_job() -> None:
    torn: list[object] = []
    env.x = envq.EnvironmentVariable(lambda: "value", lambda x: x, teardown=torn.append)

    @envq.task
    def read() -> object:
        return env.x

    assert envq.get(read.enqueue()) == "value"
    del env.x
    with pytest.raises(envq.JobFailed, match="NotDeclared"):
        envq.get(read.enqueue())
    assert torn == ["value"]


def test_the_server_is_never_asked_for() -> None:
    with pytest.raises(envq.ConfigurationError, match="no server"):
        envq.Queue("x").empty()


def test_afterwards_everything_is_as_it_was() -> None:
    with envq.testing.inline():
        env.inner = envq.EnvironmentVariable(list)
        assert env.inner == []
    assert not hasattr(env, "inner")


def test_what_was_declared_before_is_there_on_copies_of_its_own() -> None:
    env.numbers = envq.EnvironmentVariable(lambda: [1])
    env.numbers.append("outside")

    @envq.task
    def append() -> list[Any]:
        env.numbers.append("job's")
        return env.numbers

    with envq.testing.inline():
        assert envq.get(append.enqueue()) == [1, "job's"]
        assert env.numbers == [1]
        env.numbers.append("inside")
        del env.numbers
    assert env.numbers == [1, "outside"]
    assert envq.get(append.enqueue()) == [1, "job's"]


def test_what_a_module_declares_at_its_import_can_be_tested_without_a_server() -> None:
    with bound_driver() as scope:
        env.model = envq.EnvironmentVariable(lambda: ["model"])
        assert scope.declared()

        @envq.task
        def read() -> object:
            return env.model

        with envq.testing.inline():
            assert envq.get(read.enqueue()) == ["model"]


@contextmanager
def bound_driver() -> Iterator[DriverScope]:
    """The scope of a process that has not connected."""
    scope = DriverScope(lambda: pytest.fail("connected"))
    before = bind(scope)
    try:
        yield scope
    finally:
        bind(before)
        scope.close()


def test_jobs_run_in_any_thread(inline: Inline) -> None:
    def enqueue() -> int:
        return envq.get(envq.task(lambda: 7).enqueue())

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(enqueue).result(timeout=10) == 7
