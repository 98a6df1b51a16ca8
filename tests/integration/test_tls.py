"""TLS with certificates on both sides: drivers, workers and commands get in with one, and nobody without."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from datetime import timedelta
from operator import add
from pathlib import Path
from urllib.parse import quote

import pytest
from support.certificates import Authority
from support.cli import envq as command
from support.servers import Server, free_port, redis70_binary
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq.driver.client import driver_scope, swap_default

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    if shutil.which("openssl") is None or redis70_binary() is None:
        if "CI" in os.environ:
            pytest.fail("openssl and a redis-server that speaks TLS are promised in CI")
        pytest.skip("openssl, or a redis-server that speaks TLS, is not installed here")
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls(authority: Authority) -> Iterator[tuple[Server, int]]:
    """A server that takes nobody without a certificate, and its port."""
    certificate, key = authority.issue("127.0.0.1")
    port = free_port()
    binary = redis70_binary()
    assert binary is not None
    server = Server(
        binary, "--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key),
        "--tls-ca-cert-file", str(authority.certificate), "--tls-auth-clients", "yes",
    ).start()  # fmt: skip
    yield server, port
    server.remove()


def url_of(port: int, authority: Authority, client: str | None = "client", host: str = "127.0.0.1") -> str:
    options = {"ssl_ca_certs": authority.certificate}
    if client:
        certificate, key = authority.issue(client)
        options |= {"ssl_certfile": certificate, "ssl_keyfile": key}
    query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in options.items())
    return f"rediss://{host}:{port}/0?{query}"


def test_driver_worker_and_commands_speak_it_on_every_connection(
    tls: tuple[Server, int], authority: Authority, tmp_path: Path
) -> None:
    server, port = tls
    url = url_of(port, authority)
    driver_scope.close()
    before = swap_default(None)
    worker = WorkerProcess("high", "default", url=url, directory=tmp_path)
    try:
        with server.client() as admin:
            eventually(lambda: admin.scard("rq:workers") == 1, 20)
            envq.connect(url)
            envq.env.secret = envq.EnvironmentVariable(lambda: 42, driver="never")
            assert envq.get(envq.Queue().enqueue(lambda: envq.env.secret), timeout=20) == 42
            assert envq.get(envq.Queue("high").enqueue_in(timedelta(0), add, 1, 2), timeout=20) == 3
            assert "secret" in command("env", "list", "--url", url).stdout
            plain = [each for each in admin.client_list() if each["laddr"].endswith(f":{server.port}")]
            assert len(plain) == 1, "but for this one, nobody came in by the other port"
    finally:
        driver_scope.close()
        swap_default(before)
        worker.end()


def test_an_authority_that_is_not_trusted_is_one_sentence(
    tls: tuple[Server, int], authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other")
    done = command("worker", "--url", url_of(tls[1], other))
    assert done.returncode == 3
    assert "its certificate is not accepted" in done.stderr and "ssl_ca_certs" in done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_a_certificate_for_another_host_is_one_sentence(tls: tuple[Server, int], authority: Authority) -> None:
    done = command("info", "--url", url_of(tls[1], authority, host="localhost"))
    assert done.returncode == 3
    assert "its certificate is not accepted" in done.stderr and "localhost" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_client_without_a_certificate_is_not_let_in(tls: tuple[Server, int], authority: Authority) -> None:
    done = command("info", "--url", url_of(tls[1], authority, client=None))
    assert done.returncode == 3
    assert "ssl_certfile" in done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_a_certificate_file_that_is_missing_is_one_sentence(tls: tuple[Server, int]) -> None:
    done = command("info", "--url", f"rediss://127.0.0.1:{tls[1]}/0?ssl_ca_certs=/no/such.crt")
    assert done.returncode in (3, 4)
    assert "/no/such.crt" in done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.strip().splitlines()) == 1
