"""From URLs to connections, and from errors to sentences."""

from __future__ import annotations

import pytest
import redis

from envq.errors import ConfigurationError, ServerUnavailable
from envq.settings import Settings
from envq.store.connection import connection_options, database_number, driver_client, explain, safe_url, worker_client
from envq.store.replies import NotPrimary, Parser, ServerBusy
from envq.store.sentinel import SentinelConnection, Sentinels, SentinelSSLConnection
from envq.store.trouble import for_driver

URL = "redis+sentinel://me:secret@h1:26380,h2,[::1]:7/3?master=m&sentinel_password=hush&socket_timeout=2"


@pytest.mark.parametrize("make", [driver_client, worker_client])
def test_a_sentinel_url_names_sentinels_a_primary_and_the_options_of_both(make: type) -> None:
    client = make(URL)
    options = connection_options(client)
    assert client.connection_pool.connection_class is SentinelConnection
    assert options["sentinels"] == Sentinels("m", (("h1", 26380), ("h2", 26379), ("::1", 7)), {"password": "hush"})
    assert (options["username"], options["password"], options["socket_timeout"]) == ("me", "secret", 2)
    assert database_number(client) == 3


def test_tls_holds_for_the_sentinels_too() -> None:
    client = worker_client("rediss+sentinel://h/0?master=m&ssl_ca_certs=/ca.pem")
    assert client.connection_pool.connection_class is SentinelSSLConnection
    assert connection_options(client)["sentinels"].options == {"ssl": True, "ssl_ca_certs": "/ca.pem"}
    assert connection_options(client)["ssl_ca_certs"] == "/ca.pem"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis+sentinel://h1,h2/0", r"add \?master=NAME"),
        ("redis+sentinel:///0?master=m", "host:port"),
        ("redis+sentinel://h:port/0?master=m", "[Pp]ort"),
        ("redis+sentinel://h/x?master=m", "the database is a number"),
        ("redis+sentinel://h/0?master=m&sentinel_pasword=x", "no option sentinel_pasword"),
        ("sentinel://h/0", "is not a Redis URL"),
    ],
)
def test_a_sentinel_url_that_cannot_be_used_is_refused(url: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        worker_client(url)


def test_no_password_of_a_url_is_shown() -> None:
    shown = safe_url(URL)
    assert shown == URL.replace("secret", "***").replace("hush", "***")
    assert safe_url("redis://h/0?password=x") == "redis://h/0?password=***"


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("READONLY You can't write against a read only replica.", NotPrimary),
        ("MASTERDOWN Link with MASTER is down", NotPrimary),
        ("UNBLOCKED force unblock from blocking operation", NotPrimary),
        ("BUSY Redis is busy running a script.", ServerBusy),
        ("LOADING Redis is loading the dataset in memory", redis.BusyLoadingError),
        (
            "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM no memory",
            redis.OutOfMemoryError,
        ),
        ("ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You can't", NotPrimary),
        ("ERR Error running script (call to f_1): @user_script:1: WRONGTYPE Operation", redis.ResponseError),
    ],
)
def test_a_state_of_the_server_is_told_from_a_wrong_command(reply: str, kind: type) -> None:
    assert type(Parser.parse_error(reply)) is kind


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NotPrimary("x"), "is a replica"),
        (ServerBusy("x"), "SCRIPT KILL"),
        (redis.BusyLoadingError("x"), "LOADING"),
        (redis.ConnectionError("max number of clients reached"), "raise maxclients"),
        (redis.OutOfMemoryError("x"), "maxmemory"),
        (redis.ResponseError("MISCONF Errors writing to the AOF file"), "free the disk"),
        (redis.ResponseError("NOREPLICAS Not enough good replicas to write."), "min-replicas-to-write"),
        (redis.exceptions.NoPermissionError("User u has no permissions"), "ACL"),
        (redis.AuthenticationError("Authentication required."), "user name or password"),
        (redis.ConnectionError("Error 111"), "is it running"),
    ],
)
def test_each_trouble_is_one_sentence_that_says_what_to_do(error: redis.RedisError, words: str) -> None:
    for told in (explain(error, "redis://h:1/0"), for_driver(error, "redis://h:1/0", 5.0)):
        assert isinstance(told, ServerUnavailable)
        assert "redis://h:1/0" in str(told)
        assert words in str(told)
        assert "\n" not in str(told)


def test_what_a_driver_is_told_is_also_redis_py_s_error() -> None:
    assert isinstance(for_driver(redis.ConnectionError("x"), "redis://h", 5.0), redis.ConnectionError)
    assert isinstance(for_driver(redis.OutOfMemoryError("x"), "redis://h", 5.0), redis.ResponseError)
    assert for_driver(redis.ResponseError("WRONGTYPE Operation"), "redis://h", 5.0) is None


def test_how_long_a_driver_tries_is_a_setting() -> None:
    assert Settings.load(environ={}).retry_for_s == 5
    assert Settings.load(environ={"ENVQ_RETRY_FOR": "0.5"}).retry_for_s == 0.5
    assert Settings.load(retry_for_s=0, environ={"ENVQ_RETRY_FOR": "0.5"}).retry_for_s == 0
    for text in ("-1", "soon", "nan"):
        with pytest.raises(ConfigurationError, match="ENVQ_RETRY_FOR"):
            Settings.load(environ={"ENVQ_RETRY_FOR": text})
