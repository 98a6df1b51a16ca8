"""What ``envq.get`` says first about a failure."""

from __future__ import annotations

import traceback

import pytest

from envq.errors import EnvironmentVariableFailed, JobFailed, WorkerLost
from envq.jobs.outcome import failure


def text_of(error: BaseException) -> str:
    try:
        raise error
    except BaseException as raised:  # noqa: BLE001 - any error is shown
        return "".join(traceback.format_exception(raised))


def chained() -> str:
    try:
        try:
            raise KeyError("cause")
        except KeyError as cause:
            raise ValueError("effect") from cause
    except ValueError as raised:
        return "".join(traceback.format_exception(raised))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (text_of(ValueError("one line")), "ValueError: one line"),
        (text_of(ValueError("one\ntwo\nKeyError: three")), "ValueError: one"),
        (chained(), "ValueError: effect"),
        (
            text_of(EnvironmentVariableFailed(f"variable 'x' could not be built:\n{chained()}", "x")),
            "envq.errors.EnvironmentVariableFailed: variable 'x' could not be built:",
        ),
        ("envq.errors.JobTimedOut: too long", "envq.errors.JobTimedOut: too long"),
        ("", "it failed and its traceback is not kept any more"),
    ],
)
def test_the_first_line_names_what_was_raised_last(text: str, said: str) -> None:
    error = failure(text, "j1", "f")
    assert str(error).splitlines()[0] == f"job j1 (f): {said}"
    assert error.remote_traceback == text


def test_a_lost_worker_is_told_by_its_class() -> None:
    assert type(failure(text_of(WorkerLost("its process died")), "j1", "f")) is WorkerLost
    assert type(failure(text_of(ValueError("envq.errors.WorkerLost: no")), "j1", "f")) is JobFailed
