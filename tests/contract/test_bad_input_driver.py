"""What a driver gets wrong is refused where it happens, in one clear sentence, and nothing is written."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from zlib import crc32

import pytest
import redis
from support.servers import Server

import envq
from envq.driver import client as client_module
from envq.driver.client import Client


def one_sentence(error: BaseException) -> str:
    text = str(error)
    assert text
    assert "\n" not in text
    assert "Traceback" not in text
    return text


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_server_that_is_not_there(redis_url: str) -> None:
    url = f"redis://:hidden@127.0.0.1:{closed_port()}/0"
    with pytest.raises(envq.ServerUnavailable) as raised:
        envq.connect(url)
    text = one_sentence(raised.value)
    assert "cannot reach Redis" in text
    assert "comes from the argument" in text
    assert "envq dev" in text
    assert "hidden" not in text


def test_a_job_enqueued_without_any_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVQ_URL", f"redis://127.0.0.1:{closed_port()}/0")
    before = client_module.swap_default(None)
    try:
        with pytest.raises(envq.ServerUnavailable, match="comes from ENVQ_URL") as raised:
            work.enqueue()
        one_sentence(raised.value)
    finally:
        client_module.swap_default(before)


def test_a_wrong_password(own_server: Callable[..., Server]) -> None:
    server = own_server()
    with server.client() as admin:
        admin.config_set("requirepass", "right")
    for url in (f"redis://:wrong@127.0.0.1:{server.port}/0", server.url()):
        with pytest.raises(envq.ServerUnavailable) as raised:
            envq.connect(url)
        text = one_sentence(raised.value)
        assert "refuses the user name or password" in text
        assert "wrong@" not in text


@pytest.mark.parametrize(
    "url", ["localhost:6379", "http://localhost", "redis://localhost:port/0", "redis://localhost/abc", "redis://[", " "]
)
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(envq.ConfigurationError) as raised:
        envq.connect(url)
    one_sentence(raised.value)


@pytest.mark.parametrize("namespace", ["a b", "a:b", "ä", "*"])
def test_a_namespace_that_cannot_be_used(namespace: str, redis_url: str) -> None:
    with pytest.raises(envq.ConfigurationError, match="namespace") as raised:
        envq.connect(redis_url, namespace=namespace)
    one_sentence(raised.value)


def test_a_connection_that_decodes(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url, decode_responses=True) as decoding:
        with pytest.raises(envq.ConfigurationError, match="decode_responses=True") as raised:
            envq.connect(decoding)
        one_sentence(raised.value)


def test_a_failed_connect_keeps_the_client_there_was(client: Client) -> None:
    with pytest.raises(envq.ServerUnavailable):
        envq.connect(f"redis://127.0.0.1:{closed_port()}/0")
    assert client_module.default_client() is client


@envq.task
def work(x: int = 0) -> int:
    return x


@pytest.mark.parametrize(
    ("mistake", "kind", "parts"),
    [
        (lambda: work.enqueue(1, 2), TypeError, ["work()", "too many"]),
        (lambda: work.enqueue(y=1), TypeError, ["work()", "'y'"]),
        (lambda: work.starmap([(1, 2)]), TypeError, ["work()"]),
        (lambda: work.options(timeot=3), envq.ConfigurationError, ["'timeot'", "'timeout'"]),
        (lambda: work.options(on_crash="retry"), envq.ConfigurationError, ["on_crash", "'requeue' or 'fail'"]),
        (lambda: work.options(timeout=0), envq.ConfigurationError, ["timeout=0"]),
        (lambda: work.options(timeout=float("nan")), envq.ConfigurationError, ["timeout=nan"]),
        (lambda: work.options(unique=True).enqueue(), ValueError, ["job_id"]),
        (lambda: work.options(on_success=envq.Callback(lambda *_: None)).enqueue(), envq.ConfigurationError,
         ["on_success", "cannot import", "<lambda>"]),
        (lambda: envq.Queue().enqueue(3), TypeError, ["not a int"]),  # type: ignore[arg-type]
        (lambda: envq.Queue().enqueue(lambda x: x, threading.Lock()), envq.PayloadError,
         ["argument 0", "lock", "EnvironmentVariable"]),
        (lambda: envq.Queue().enqueue(lambda x: x, x=redis.Redis()), envq.PayloadError,
         ["argument 'x'", "Redis client", "EnvironmentVariable"]),
        (lambda: envq.task(3), TypeError, ["function"]),  # type: ignore[call-overload]
        (lambda: work.enqueue_in("soon"), TypeError, ["seconds"]),  # type: ignore[arg-type]
        (lambda: envq.get(3), TypeError, ["int"]),  # type: ignore[call-overload]
    ],
    ids=lambda value: "" if not isinstance(value, list) else "-".join(value[:1]),
)  # fmt: skip
def test_a_mistake_at_enqueue_is_one_sentence_and_writes_no_job(
    mistake: Callable[[], object], kind: type[Exception], parts: list[str], client: Client
) -> None:
    with pytest.raises(kind) as raised:
        mistake()
    text = one_sentence(raised.value)
    for part in parts:
        assert part in text
    assert client.connection.dbsize() == 0


def test_captured_things_that_cannot_travel_are_named(client: Client) -> None:
    lock = threading.Lock()

    def uses_it() -> None:
        lock.acquire()

    with pytest.raises(envq.PayloadError, match="lock") as raised:
        envq.Queue().enqueue(uses_it)
    assert "'lock'" in one_sentence(raised.value)
    assert client.connection.dbsize() == 0


def test_arguments_over_the_limit_are_refused_and_large_ones_warned_of(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ENVQ_MAX_PAYLOAD_BYTES", str(1024 * 1024))
    before = client_module.swap_default(None)
    try:
        client = envq.connect(redis_url)
        with pytest.raises(envq.PayloadTooLarge, match="argument 0") as raised:
            envq.Queue().enqueue(len, b"x" * (2 * 1024 * 1024))
        one_sentence(raised.value)
        assert client.connection.dbsize() == 0
        with caplog.at_level(logging.WARNING, "envq"):  # once for each function, so it is one nobody else uses
            envq.Queue().enqueue(crc32, b"x" * (200 * 1024))
            assert not caplog.records
            envq.Queue().enqueue(crc32, b"x" * (300 * 1024))
        [record] = caplog.records
        assert "zlib.crc32, its arguments" in record.getMessage()
        assert "\n" not in record.getMessage()
    finally:
        client_module.driver_scope.close()
        client_module.swap_default(before)


@pytest.mark.parametrize("limit", ["0", "-1", "many"])
def test_a_limit_that_is_none(limit: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVQ_MAX_PAYLOAD_BYTES", limit)
    with pytest.raises(envq.ConfigurationError, match="ENVQ_MAX_PAYLOAD_BYTES") as raised:
        envq.connect(redis_url)
    one_sentence(raised.value)


@pytest.mark.parametrize("value", [3, lambda: 3, None, dict])
def test_anything_but_a_variable_is_refused_and_says_what_to_do(value: Any, client: Client) -> None:
    with pytest.raises(TypeError, match="EnvironmentVariable") as raised:
        envq.env.x = value
    one_sentence(raised.value)
    assert client.connection.dbsize() == 0


@pytest.mark.parametrize(
    "options",
    [
        {"initializer": 3},
        {"initializer": dict, "reinitializer": 3},
        {"initializer": dict, "build": "soon"},
        {"initializer": dict, "init_timeout": -1},
        {"initializer": dict, "queues": []},
        {"initializer": dict, "version": 0},
    ],
    ids=lambda options: "-".join(f"{name}" for name in options),
)
def test_a_variable_that_cannot_be_used_is_refused_at_its_making(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError) as raised:
        envq.EnvironmentVariable(**options)
    one_sentence(raised.value)


def test_an_unknown_name_on_the_driver_lists_the_known_ones(client: Client) -> None:
    envq.env.model = envq.EnvironmentVariable(dict)
    with pytest.raises(AttributeError, match=r"'modle'.*model") as raised:
        _ = envq.env.modle
    one_sentence(raised.value)
    assert isinstance(raised.value, envq.NotDeclared)


def test_a_job_id_that_nobody_knows_is_gone(client: Client) -> None:
    with pytest.raises(envq.JobGone, match="no-such-id") as raised:
        envq.get("no-such-id", timeout=5)
    one_sentence(raised.value)


def test_an_empty_wait_is_a_timeout_that_tells_the_status(client: Client) -> None:
    job = envq.Queue().enqueue_in(timedelta(hours=1), "operator.add", 1, 2)
    with pytest.raises(envq.GetTimeout, match="scheduled") as raised:
        envq.get(job, timeout=0.2)
    assert isinstance(raised.value, TimeoutError)
    one_sentence(raised.value)
