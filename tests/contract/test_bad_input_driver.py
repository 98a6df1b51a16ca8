"""What a driver gets wrong is refused where it happens, in one clear sentence, and nothing is written."""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import redis
import redis.asyncio
from support.bad_input import assert_one_sentence, row
from support.servers import Server

import envq
from envq.driver import client as client_module
from envq.driver.client import Client


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_server_that_is_not_there(redis_url: str) -> None:
    url = f"redis://:hidden@127.0.0.1:{closed_port()}/0"
    with pytest.raises(envq.ServerUnavailable) as raised:
        envq.connect(url)
    text = assert_one_sentence(raised.value)
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
        assert_one_sentence(raised.value)
    finally:
        client_module.swap_default(before)


def test_a_wrong_password(own_server: Callable[..., Server]) -> None:
    server = own_server()
    with server.client() as admin:
        admin.config_set("requirepass", "right")
    for url in (f"redis://:wrong@127.0.0.1:{server.port}/0", server.url()):
        with pytest.raises(envq.ServerUnavailable) as raised:
            envq.connect(url)
        text = assert_one_sentence(raised.value)
        assert "refuses the user name or password" in text
        assert "wrong@" not in text


def test_a_failed_connect_keeps_the_client_there_was(client: Client) -> None:
    with pytest.raises(envq.ServerUnavailable):
        envq.connect(f"redis://127.0.0.1:{closed_port()}/0")
    assert client_module.default_client() is client


@envq.task
def work(x: int = 0) -> int:
    return x


def uses(it: object) -> Callable[[], object]:
    def uses() -> object:
        return it

    return uses


def declare(*arguments: Any, **options: Any) -> None:
    envq.env.x = envq.EnvironmentVariable(*arguments, **options)


def declare_with(opened: Any) -> None:
    with opened:
        declare(uses(opened))


def misspelt() -> None:
    declare(dict)
    envq.env.model = envq.EnvironmentVariable(dict)
    del envq.env.x
    _ = envq.env.modle


def generator() -> Any:
    yield 1


async def coroutine() -> None: ...


def pass_coroutine() -> None:
    given = coroutine()
    try:
        work.enqueue(given)  # type: ignore[arg-type]
    finally:
        given.close()


def initialize_with_coroutine() -> None:
    given = coroutine()
    try:
        declare(given)
    finally:
        given.close()


def nested() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


def default_lock() -> None:
    lock = threading.Lock()
    envq.Queue().enqueue(lambda a=lock: None)


def make() -> object:
    return object()


NAN = math.nan
HUGE = 10**30
UNCONNECTED = redis.Redis()
MISTAKES: dict[str, Callable[[], object]] = {
    "driver-assign-value": lambda: setattr(envq.env, "x", 3),
    "driver-assign-function": lambda: setattr(envq.env, "x", make),
    "driver-assign-name": lambda: setattr(envq.env, "class", envq.EnvironmentVariable(dict)),
    "driver-initializer-value": lambda: declare(3),
    "driver-initializer-none": lambda: declare(None),
    "driver-initializer-coroutine": initialize_with_coroutine,
    "driver-initializer-arguments": lambda: declare(lambda x: x),
    "driver-initializer-path": lambda: declare("nonsense"),
    "driver-reinitializer-arguments": lambda: declare(dict, lambda: None),
    "driver-reinitializer-generator": lambda: declare(dict, lambda _: (yield)),
    "driver-keyword": lambda: declare(dict, reset=dict),
    "driver-build-word": lambda: declare(dict, build="soon"),
    "driver-required-lazy": lambda: declare(dict, required=True, build="lazy"),
    "driver-init-timeout-negative": lambda: declare(dict, init_timeout=-1),
    "driver-init-timeout-nan": lambda: declare(dict, init_timeout=NAN),
    "driver-init-timeout-inf": lambda: declare(dict, init_timeout=math.inf),
    "driver-reset-timeout-text": lambda: declare(dict, reset_timeout="3"),
    "driver-reset-timeout-bool": lambda: declare(dict, reset_timeout=True),
    "driver-version": lambda: declare(dict, version=0),
    "driver-queues": lambda: declare(dict, queues=[]),
    "driver-variable-unknown": misspelt,
    "driver-delete-unknown": lambda: delattr(envq.env, "nope"),
    "driver-code-lock": lambda: declare(uses(threading.Lock())),
    "driver-code-file": lambda: declare_with(Path(os.devnull).open()),  # noqa: SIM115 - it is closed there
    "driver-code-socket": lambda: declare_with(socket.socket()),
    "driver-code-thread": lambda: declare(uses(threading.Thread())),
    "driver-code-redis": lambda: declare(uses(UNCONNECTED)),
    "driver-code-generator": lambda: declare(uses(generator())),
    "driver-code-big": lambda: declare(uses(os.urandom(20 * 1024 * 1024))),
    "driver-argument-lock": lambda: work.enqueue(threading.Lock()),  # type: ignore[arg-type]
    "driver-argument-redis": lambda: envq.Queue().enqueue(lambda x: x, x=UNCONNECTED),
    "driver-argument-coroutine": pass_coroutine,
    "driver-argument-generator": lambda: work.enqueue(generator()),
    "driver-argument-deep": lambda: work.enqueue(nested()),  # type: ignore[arg-type]
    "driver-argument-job": lambda: work.enqueue(envq.Queue().create_job("operator.add")),  # type: ignore[arg-type]
    "driver-default-lock": default_lock,
    "driver-arguments-many": lambda: work.enqueue(1, 2),  # type: ignore[call-arg]
    "driver-arguments-name": lambda: work.enqueue(y=1),  # type: ignore[call-arg]
    "driver-starmap": lambda: work.starmap([1]),  # type: ignore[list-item]
    "driver-function-value": lambda: envq.Queue().enqueue(3),  # type: ignore[arg-type]
    "driver-function-generator": lambda: envq.Queue().enqueue(generator()),
    "driver-task-value": lambda: envq.task(3),  # type: ignore[call-overload]
    "driver-option-unknown": lambda: work.options(timeot=3),  # type: ignore[call-arg]
    "driver-timeout-zero": lambda: work.options(timeout=0),
    "driver-timeout-nan": lambda: work.options(timeout=NAN),
    "driver-timeout-text": lambda: work.options(timeout="soon"),
    "driver-timeout-bool": lambda: work.options(timeout=True),
    "driver-ttl-negative": lambda: work.options(ttl=-5),
    "driver-ttl-huge": lambda: work.options(ttl=HUGE),
    "driver-ttl-huge-rq": lambda: envq.Queue().enqueue("operator.add", ttl=HUGE),
    "driver-result-ttl-text": lambda: work.options(result_ttl="x"),
    "driver-retry": lambda: work.options(retry=-1),
    "driver-repeat": lambda: work.options(repeat=3),  # type: ignore[typeddict-item]
    "driver-meta": lambda: work.options(meta=[1]),  # type: ignore[typeddict-item]
    "driver-depends-on-value": lambda: work.options(depends_on=3),  # type: ignore[typeddict-item]
    "driver-on-crash": lambda: work.options(on_crash="retry"),  # type: ignore[typeddict-item]
    "driver-description": lambda: work.options(description="\udc80"),
    "driver-unique": lambda: work.options(unique=True).enqueue(),
    "driver-callback": lambda: work.options(on_success=envq.Callback(lambda *_: None)).enqueue(),
    "driver-job-id-empty": lambda: work.options(job_id=""),
    "driver-job-id-space": lambda: work.options(job_id="a b"),
    "driver-job-id-control": lambda: work.options(job_id="a\nb"),
    "driver-job-id-surrogate": lambda: work.options(job_id="\udc80"),
    "driver-job-id-number": lambda: work.options(job_id=3),  # type: ignore[typeddict-item]
    "driver-queue-empty": lambda: envq.Queue(""),
    "driver-queue-none": lambda: envq.Queue(None),  # type: ignore[arg-type]
    "driver-queue-control": lambda: envq.Queue("a\nb"),
    "driver-queue-surrogate": lambda: envq.Queue("\udc80"),
    "driver-queue-option": lambda: work.options(queue=3),  # type: ignore[typeddict-item]
    "driver-delay-text": lambda: work.enqueue_in("soon"),  # type: ignore[arg-type]
    "driver-delay-nan": lambda: work.enqueue_in(NAN),
    "driver-time-text": lambda: work.enqueue_at("soon"),  # type: ignore[arg-type]
    "driver-get-value": lambda: envq.get(3),  # type: ignore[call-overload]
    "driver-get-task": lambda: envq.get(work),  # type: ignore[call-overload]
    "driver-get-timeout-nan": lambda: envq.get("no-such-id", timeout=NAN),
    "driver-get-timeout-text": lambda: envq.get("no-such-id", timeout="1"),  # type: ignore[call-overload]
    "driver-get-unknown": lambda: envq.get("no-such-id", timeout=5),
    "driver-wait-ready-unknown": lambda: envq.wait_ready("nope", timeout=5),
    "driver-wait-ready-nan": lambda: envq.wait_ready("x", timeout=NAN),
    "driver-ship-python": lambda: envq.ship("os"),
    "driver-url-value": lambda: envq.connect(3),  # type: ignore[arg-type]
    "driver-url-async": lambda: envq.connect(redis.asyncio.Redis()),  # type: ignore[arg-type]
    "driver-url-scheme": lambda: envq.connect("http://localhost"),
    "driver-url-option": lambda: envq.connect("redis://localhost/0?no_such=1"),
    "driver-mode": lambda: envq.connect(driver="soon"),  # type: ignore[arg-type]
    "driver-namespace": lambda: envq.connect(namespace="a b"),
    "driver-decodes": lambda: envq.connect(redis.Redis(decode_responses=True)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_what_the_table_says_and_writes_no_job(mistake: str, client: Client) -> None:
    with pytest.raises(Exception) as raised:
        MISTAKES[mistake]()
    row(mistake).assert_told(assert_one_sentence(raised.value))
    assert not list(client.connection.scan_iter("rq:*"))


@pytest.mark.parametrize(
    "url", ["localhost:6379", "redis://localhost:port/0", "redis://localhost/abc", "redis://[", " "]
)
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(envq.ConfigurationError) as raised:
        envq.connect(url)
    assert_one_sentence(raised.value)


def test_a_timeout_below_zero_does_not_wait(client: Client) -> None:
    with pytest.raises(envq.GetTimeout, match="within -1 s; it is queued") as raised:
        envq.get(work.enqueue(), timeout=-1)
    assert_one_sentence(raised.value)


def test_arguments_over_the_limit_are_refused_and_large_ones_warned_of(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ENVQ_MAX_PAYLOAD_BYTES", str(1024 * 1024))
    before = client_module.swap_default(None)
    try:
        client = envq.connect(redis_url)
        with pytest.raises(envq.PayloadTooLarge, match="argument 0") as raised:
            envq.Queue().enqueue(len, b"x" * (2 * 1024 * 1024))
        assert_one_sentence(raised.value)
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
    assert_one_sentence(raised.value)


def test_an_empty_wait_is_a_timeout_that_tells_the_status(client: Client) -> None:
    job = envq.Queue().enqueue_in(timedelta(hours=1), "operator.add", 1, 2)
    with pytest.raises(envq.GetTimeout, match="scheduled") as raised:
        envq.get(job, timeout=0.2)
    assert isinstance(raised.value, TimeoutError)
    assert_one_sentence(raised.value)
