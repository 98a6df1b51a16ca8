"""envq.task: looks and calls like its function, and enqueues with its signature."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import cloudpickle
import pytest

import envq
import envq.testing
from envq.errors import ConfigurationError
from envq.testing import Inline


@envq.task
def add(x: int, y: int = 1) -> int:
    """Adds."""
    return x + y


@envq.task(queue="slow", timeout=0.5, result_ttl=7, retry=2, on_crash="fail")
def careful() -> None: ...


@envq.task
async def fetch(x: int) -> int:
    return x


@pytest.fixture
def inline() -> Iterator[Inline]:
    with envq.testing.inline() as inside:
        yield inside


def test_a_task_is_called_like_its_function() -> None:
    assert add(1, y=2) == 3
    assert add.__name__ == "add"
    assert add.__doc__ == "Adds."
    assert str(inspect.signature(add)) == "(x: 'int', y: 'int' = 1) -> 'int'"


def test_an_async_task_gives_a_coroutine_when_it_is_called() -> None:
    coroutine = fetch(1)
    assert inspect.iscoroutine(coroutine)
    coroutine.close()


def test_a_module_s_task_is_pickled_by_name_and_a_nested_one_by_value() -> None:
    assert pickle.loads(pickle.dumps(add)) is add

    @envq.task(queue="nested")
    def nested(x: int) -> int:
        return x + add(1)

    copy = pickle.loads(cloudpickle.dumps(nested))
    assert copy(1) == 3
    assert copy is not nested


@pytest.mark.parametrize("given", [(), (1, 2, 3)])
def test_arguments_that_do_not_fit_raise_as_a_call_would(given: tuple[Any, ...], inline: Inline) -> None:
    with pytest.raises(TypeError, match=r"add\(\)"):
        add.enqueue(*given)
    with pytest.raises(TypeError, match=r"add\(\)"):
        add.enqueue_in(1, *given)
    with pytest.raises(TypeError, match=r"add\(\)"):
        add.starmap([given])
    assert inline.jobs == []


def test_the_options_of_the_decorator_stand_in_the_job(inline: Inline) -> None:
    job = careful.enqueue()
    assert (job.origin, job.time_limit, job.timeout, job.result_ttl) == ("slow", 0.5, 1, 7)
    assert (job.on_crash, job.retries_left) == ("fail", 2)


def test_options_of_a_call_replace_those_of_the_decorator_and_leave_it_alone(inline: Inline) -> None:
    job = careful.options(timeout=None, queue="fast", meta={"a": 1}, seed=7, description="mine").enqueue()
    assert (job.origin, job.time_limit, job.timeout, job.result_ttl) == ("fast", None, -1, 7)
    assert (job.meta, job.seed, job.description) == ({"a": 1}, 7, "mine")
    assert careful.enqueue().origin == "slow"


def test_an_unknown_option_is_named_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"'jobid'; did you mean 'job_id'\? \(known: .*webhooks"):
        add.options(jobid="x")  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="on_crash='explode'"):
        add.options(on_crash="explode")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("timeout", "limit", "whole"),
    [(0.5, 0.5, 1), (90, 90.0, 90), ("2m", 120.0, 120), ("1.5", 1.5, 2), (-1, None, -1), (None, None, -1)],
)
def test_timeouts_are_seconds_with_fractions_and_whole_ones_for_rq(
    timeout: Any, limit: float | None, whole: int, inline: Inline
) -> None:
    job = add.options(timeout=timeout).enqueue(1)
    assert (job.time_limit, job.timeout) == (limit, whole)
    assert job.own_fields() == ({"envq_timeout": limit} if limit != whole and limit else {})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("timeout", 0), ("timeout", "x"), ("timeout", float("nan")), ("timeout", timedelta(seconds=1)),
        ("timeout", True), ("queue", 3), ("queue", ""), ("retry", -1), ("retry", "2"), ("retry", True),
        ("result_ttl", "x"),
    ],
)  # fmt: skip
def test_an_option_that_cannot_be_used_is_refused_by_name_where_it_is_written(option: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"^{option}=.* must be "):
        envq.task(**{option: value})
    with pytest.raises(ConfigurationError, match=rf"^{option}=.* must be "):
        add.options(**{option: value})


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": "2m"},
        {"timeout": -1},
        {"timeout": None},
        {"queue": envq.Queue("x")},
        {"retry": 0},
        {"result_ttl": "1h"},
    ],
)
def test_what_an_option_takes_is_not_refused(options: Any) -> None:
    add.options(**options)


def test_an_option_among_the_arguments_is_told_where_it_belongs(inline: Inline) -> None:
    with pytest.raises(TypeError, match=r"add\(\): .*'timeout'; options of the job .* add\.options\(timeout=\.\.\.\)"):
        add.enqueue(1, timeout=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError) as raised:
        add.enqueue(1, z=3)  # type: ignore[call-arg]
    assert "options" not in str(raised.value)


def test_a_delay_or_a_time_of_another_type_is_refused_by_name(inline: Inline) -> None:
    with pytest.raises(TypeError, match=r"enqueue_in takes seconds or a timedelta first, .* not '5'"):
        add.enqueue_in("5", 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"enqueue_at takes a datetime first, .* not 5"):
        add.enqueue_at(5, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [None, 5, add, add(1), [None], [add], b"id"])
def test_what_is_no_job_is_refused_with_what_was_meant(given: Any) -> None:
    with pytest.raises(TypeError, match=r"^envq\.get takes a job, .* did you mean (add|task)\.enqueue\(\.\.\.\)\?$"):
        envq.get(given)


def test_map_makes_one_job_an_item_in_order(inline: Inline) -> None:
    assert envq.get(add.map(range(3))) == [1, 2, 3]
    assert envq.get(add.starmap([(1, 2), (3,)])) == [3, 4]
    assert envq.get(add.options(queue="x").map([5])) == [6]


def test_a_delay_may_be_seconds_or_a_timedelta(inline: Inline) -> None:
    jobs = [add.enqueue_in(60, 1), add.enqueue_in(timedelta(minutes=1), 1)]
    assert [job.get_status().value for job in jobs] == ["scheduled", "scheduled"]


def test_only_functions_can_be_decorated() -> None:
    with pytest.raises(TypeError, match="decorates a function"):
        envq.task(5)  # type: ignore[call-overload]


def test_retry_intervals_are_spread_over_all_retries(inline: Inline) -> None:
    job = add.options(retry=envq.Retry(5, interval=[1, 2, 3])).enqueue(1)
    assert job.retry_intervals == [1, 2, 3, 3, 3]


@pytest.mark.parametrize("option", ["on_success", "on_failure", "on_stopped"])
def test_a_callback_that_no_worker_can_import_is_refused_by_name(option: str, inline: Inline) -> None:
    with pytest.raises(ConfigurationError, match=rf"{option}: a worker cannot import .*<lambda>.*module"):
        add.options(**{option: envq.Callback(lambda *_: None)}).enqueue(1)  # type: ignore[arg-type]
    assert inline.jobs == []
