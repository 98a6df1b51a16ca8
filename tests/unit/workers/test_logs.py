"""Log lines: ISO 8601 in UTC, as text or JSON, with the running job."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator

import pytest

from envq.workers import logs


@pytest.fixture(autouse=True)
def no_context() -> Iterator[None]:
    yield
    logs.set_context()


def record(name: str = "envq.worker", message: str = "hello %s", **fields: object) -> logging.LogRecord:
    made = logging.LogRecord(name, logging.INFO, __file__, 1, message, ("you",), None)
    made.created, made.msecs = 1796050800.5, 500.0
    made.__dict__.update(fields)
    return made


def test_text_has_time_in_utc_level_and_logger() -> None:
    assert logs.formatter("text").format(record()) == "2026-11-30T15:00:00.500Z INFO envq.worker: hello you"


def test_what_user_code_logs_names_the_job() -> None:
    logs.set_context(job_id="j1")
    entry = record("app.models")
    logs.add_context(entry)
    assert logs.formatter("text").format(entry).endswith("app.models: hello you [job j1]")


def test_what_a_record_says_itself_wins_over_the_context() -> None:
    logs.set_context(job_id="j1")
    entry = record(job_id="j2")
    logs.add_context(entry)
    assert json.loads(logs.formatter("json").format(entry))["job_id"] == "j2"


def test_json_is_one_line_with_the_fields_that_apply() -> None:
    try:
        raise ValueError("boom")
    except ValueError:
        entry = record(job_id="j1", duration_ms=1.5, queue="", env_version=0)
        entry.exc_info = sys.exc_info()
    line = logs.formatter("json").format(entry)
    assert "\n" not in line
    parsed = json.loads(line)
    assert parsed["at"] == "2026-11-30T15:00:00.500Z"
    assert (parsed["job_id"], parsed["duration_ms"], parsed["env_version"]) == ("j1", 1.5, 0)
    assert "queue" not in parsed
    assert "boom" in parsed["traceback"]


def test_format_string_of_the_user_is_used() -> None:
    assert logs.formatter("%(levelname)s|%(message)s").format(record()) == "INFO|hello you"
