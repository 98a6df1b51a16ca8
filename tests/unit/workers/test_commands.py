"""Messages of command channels are read without trusting them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envq.workers.supervision.commands import Command, NotACommand, parse


@pytest.mark.parametrize(
    ("data", "command"),
    [
        (b'{"command": "stop-job", "job_id": "j"}', Command("stop-job", "j")),
        (
            b'{"command": "stop-execution", "job_id": "j", "execution_id": "e"}',
            Command("stop-execution", "j", "e"),
        ),
        (b'{"command": "kill-horse"}', Command("kill-horse")),
        (b'{"command": "shutdown", "more": [1]}', Command("shutdown")),
    ],
)
def test_commands_of_stock_tools_are_understood(data: bytes, command: Command) -> None:
    assert parse(data) == command


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"null",
        b"[]",
        b"{}",
        b'{"command": 1}',
        b'{"command": {"a": 1}}',
        b'{"command": "x"}',
        b'{"command": "stop-job"}',
        b'{"command": "stop-job", "job_id": 5}',
        b"[" * 100_000,
    ],
)
def test_anything_else_is_refused_with_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(NotACommand):
        parse(data)


@given(st.binary())
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    try:
        parse(data)
    except NotACommand as error:
        assert len(str(error)) < 2000
