"""Which refusals of a server are for ever, and which pass."""

from __future__ import annotations

import pytest
import redis

from envq.store.connection import is_about_the_data


@pytest.mark.parametrize(
    "error",
    [
        redis.ResponseError("value is not an integer or out of range"),
        redis.ResponseError("ERR invalid expire time"),
        redis.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"),
        redis.DataError("Invalid input of type: 'set'"),
    ],
)
def test_what_is_wrong_with_the_data_stays_wrong(error: Exception) -> None:
    assert is_about_the_data(error)


@pytest.mark.parametrize(
    "error",
    [
        redis.ConnectionError("closed"),
        redis.TimeoutError("too slow"),
        redis.WatchError("changed"),
        redis.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
        redis.ReadOnlyError("You can't write against a read only replica."),
        redis.ResponseError("MISCONF Redis is configured to save RDB snapshots"),
        redis.ResponseError("NOREPLICAS Not enough good replicas to write."),
        ConnectionResetError("by peer"),
    ],
)
def test_what_is_wrong_with_the_server_is_tried_again(error: Exception) -> None:
    assert not is_about_the_data(error)
