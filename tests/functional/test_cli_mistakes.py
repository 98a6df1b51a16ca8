"""A mistake at the command line: one line that says what to do, no traceback, the documented exit code."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.bad_input import row
from support.cli import COMMAND, assert_one_line, envq
from support.servers import Server, free_port

Done = subprocess.CompletedProcess[str]


def told(row_id: str, done: Done) -> None:
    """As the table of bad inputs says."""
    assert_one_line(done, row(row_id).code)
    row(row_id).assert_told(done.stderr)


TYPED = {
    "cli-command-unknown": ["wroker"],
    "cli-subcommand-unknown": ["env", "lst"],
    "cli-flag-unknown": ["worker", "--wrkers", "2"],
    "cli-flag-without-value": ["worker", "-w"],
    "cli-workers-zero": ["worker", "-w", "0"],
    "cli-workers-text": ["worker", "-w", "two"],
    "cli-seconds-negative": ["worker", "--max-idle-time", "-1"],
    "cli-seconds-nan": ["worker", "--grace", "nan"],
    "cli-log-level": ["worker", "-l", "LOUD"],
    "cli-start-method": ["worker", "--start-method", "thread"],
    "cli-log-format-broken": ["worker", "--log-format", "%(message"],
    "cli-log-format-field": ["worker", "--log-format", "%(nope)s"],
    "cli-queue-empty": ["worker", ""],
    "cli-queue-control": ["worker", "a\nb"],
    "cli-label": ["worker", "--name", "a b"],
    "cli-url-scheme": ["worker", "--url", "http://localhost"],
    "cli-url-port": ["info", "--url", "redis://localhost:port/0"],
    "cli-url-port-range": ["info", "--url", "redis://localhost:99999/0"],
    "cli-url-database": ["info", "--url", "redis://localhost/abc"],
    "cli-url-option": ["info", "--url", "redis://localhost/0?no_such=1"],
    "cli-url-decodes": ["worker", "--url", "redis://localhost/0?decode_responses=True"],
    "cli-host-unknown": ["info", "--url", "redis://no.such.invalid"],
    "cli-socket-missing": ["worker", "--url", "unix:///no/such.sock"],
    "cli-namespace": ["info", "--namespace", "a:b"],
    "cli-path-missing": ["worker", "-P", "/no/such/folder"],
    "cli-path-file": ["worker", "-P", __file__],
    "cli-middleware-module": ["worker", "--middleware", "no_such_module:name"],
    "cli-middleware-name": ["worker", "--middleware", "json:no_such_name"],
    "cli-middleware-form": ["worker", "--middleware", "json"],
    "cli-middleware-kind": ["worker", "--middleware", "json:__name__"],
    "cli-variable-name": ["env", "declare", "--", "not-an-identifier", "collections:Counter"],
    "cli-variable-path": ["env", "declare", "model", "just_words"],
    "cli-variable-timeout": ["env", "declare", "model", "collections:Counter", "--init-timeout", "nan"],
    "cli-variable-unknown": ["env", "show", "model"],
    "cli-event-kind": ["monitor", "-k", "job.fialed"],
    "cli-script-missing": ["dev", "no_such.py"],
}


@pytest.mark.parametrize("mistake", TYPED)
def test_what_is_typed(mistake: str, redis_url: str, tmp_path: Path) -> None:
    told(mistake, envq(*TYPED[mistake], url=redis_url, cwd=tmp_path))


FILES: dict[str, bytes] = {
    "cli-toml-broken": b"[tool.envq\n",
    "cli-toml-encoding": b"[tool.envq]\nname = '\xff'\n",
    "cli-toml-setting": b"[tool.envq]\nwokers = 2\n",
    "cli-toml-value": b"[tool.envq]\nworkers = 'two'\n",
    "cli-toml-kind": b"[tool.envq]\nqueue = [{a = 2}]\n",
    "cli-toml-table": b"[tool]\nenvq = 3\n",
}


@pytest.mark.parametrize("mistake", FILES)
def test_a_bad_configuration_file(mistake: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(FILES[mistake])
    told(mistake, envq("worker", cwd=tmp_path))


def test_a_configuration_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "envq.toml").mkdir()
    told("cli-file-unreadable", envq("worker", cwd=tmp_path))


def test_a_file_of_another_tool_is_none_of_ours(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("tool = 3\n")
    assert envq("info", url=redis_url, cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("mistake", "variable", "value"),
    [("cli-environment-value", "ENVQ_WORKERS", "two"), ("cli-environment-limit", "ENVQ_MAX_PAYLOAD_BYTES", "0")],
)
def test_a_bad_value_from_the_environment_names_its_variable(mistake: str, variable: str, value: str) -> None:
    told(mistake, envq("worker", env={variable: value}))


@pytest.mark.parametrize("command", [["info"], ["worker"], ["env", "list"], ["env", "wait", "model"]])
def test_no_server(command: list[str], tmp_path: Path) -> None:
    done = envq(*command, url=f"redis://127.0.0.1:{free_port()}/0", cwd=tmp_path)
    told("cli-server-down", done)
    assert "envq dev" in done.stderr


@pytest.mark.parametrize("command", ["info", "worker"])
def test_a_server_that_is_not_there_is_told_with_the_source_of_its_url(command: str, tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    assert_one_line(envq(command, "--url", url, cwd=tmp_path), 3, "comes from --url")
    assert_one_line(envq(command, env={"REDIS_URL": url}, cwd=tmp_path), 3, "comes from REDIS_URL")


@pytest.mark.parametrize("command", ["info", "worker"])
def test_a_database_that_the_server_does_not_have(command: str, server: Server, tmp_path: Path) -> None:
    told("cli-url-database-range", envq(command, url=server.url(99_999), cwd=tmp_path))


@pytest.mark.parametrize("command", [["info"], ["worker"]])
def test_wrong_password(command: list[str], own_server: Callable[..., Server], tmp_path: Path) -> None:
    server = own_server()
    with server.client() as client:
        client.config_set("requirepass", "right")
    url = server.url().replace("redis://", "redis://:wrong@")
    done = envq(*command, url=url, cwd=tmp_path)
    told("cli-password-wrong", done)
    assert "wrong@" not in done.stderr


@pytest.mark.parametrize("key", ["executors", "generation", "declarations", "settle", "events"])
def test_a_key_that_somebody_else_uses(key: str, redis_url: str, redis_client: redis.Redis, tmp_path: Path) -> None:
    redis_client.sadd(f"envq:default:{key}", "theirs")
    done = envq("worker", url=redis_url, cwd=tmp_path)
    told("cli-key-taken", done)
    assert f"the key envq:default:{key} holds a set" in done.stderr
    assert redis_client.smembers(f"envq:default:{key}") == {b"theirs"}


@pytest.mark.parametrize("seconds", ["1.9", "soon", "1e9"])
def test_a_lease_that_nobody_could_keep(seconds: str, tmp_path: Path) -> None:
    told("cli-lease", envq("worker", "--lease", seconds, cwd=tmp_path))
    assert_one_line(envq("worker", env={"ENVQ_LEASE": seconds}, cwd=tmp_path), 4, "ENVQ_LEASE")


@contextlib.contextmanager
def answering(answer: Callable[[bytes], bytes]) -> Iterator[str]:
    """The URL of something that listens, and answers whatever it is told."""
    listener = socket.create_server(("127.0.0.1", 0))

    def talk(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while told := connection.recv(65536):
                connection.sendall(answer(told))

    def listen() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=talk, args=listener.accept()[:1], daemon=True).start()

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.parametrize("command", ["info", "worker"])
def test_a_port_of_something_else(command: str, tmp_path: Path) -> None:
    with answering(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
        told("cli-not-redis", envq(command, url=url, cwd=tmp_path))


def as_old_server(told: bytes) -> bytes:
    """No server of that age is to be had as a package; it matters what INFO says."""
    facts = b"# Server\r\nredis_version:5.0.14\r\n"
    if b"PING\r" in told:
        return b"+PONG\r\n"
    if b"INFO\r" in told and b"SETINFO" not in told:
        return b"$%d\r\n%s\r\n" % (len(facts), facts)
    return b"+OK\r\n" * told.count(b"*")


@pytest.mark.parametrize("command", ["info", "worker"])
def test_a_server_that_is_too_old(command: str, tmp_path: Path) -> None:
    with answering(as_old_server) as url:
        told("cli-server-old", envq(command, url=f"{url}?protocol=2", cwd=tmp_path))


@pytest.mark.parametrize("command", ["info", "worker"])
def test_a_server_of_a_cluster(command: str, own_server: Callable[..., Server], tmp_path: Path) -> None:
    server = own_server("--cluster-enabled", "yes", "--databases", "1")
    told("cli-cluster", envq(command, url=server.url(), cwd=tmp_path))


@pytest.mark.parametrize("command", [["info"], ["worker"], ["env", "list"], ["health"]])
def test_a_url_that_is_none(command: list[str], tmp_path: Path) -> None:
    told("cli-url-scheme", envq(*command, url="http://localhost", cwd=tmp_path))


@pytest.mark.parametrize("command", ["show", "remove", "rebuild"])
def test_a_misspelt_variable_is_answered_with_the_one_meant(command: str, redis_url: str) -> None:
    envq("env", "declare", "model", "collections:Counter", url=redis_url)
    told("cli-variable-misspelt", envq("env", command, "modle", url=redis_url))


@pytest.mark.parametrize("command", ["show", "rebuild"])
def test_a_declaration_that_nobody_can_read(command: str, redis_url: str, redis_client: Any) -> None:
    redis_client.hset("envq:default:declarations", "model", b"\xff")
    told("cli-variable-unreadable", envq("env", command, "model", url=redis_url))
    assert envq("env", "remove", "model", url=redis_url).returncode == 0
    assert not redis_client.hexists("envq:default:declarations", "model")


def test_a_declaration_that_nobody_can_read_is_replaced_by_a_new_one(redis_url: str, redis_client: Any) -> None:
    redis_client.hset("envq:default:declarations", "model", b"\xff")
    assert envq("env", "declare", "model", "collections:Counter", url=redis_url).returncode == 0
    assert envq("env", "show", "model", url=redis_url).returncode == 0


@pytest.mark.parametrize("name", ["_private", "class"])
def test_a_name_no_variable_can_have(name: str, redis_url: str) -> None:
    assert_one_line(envq("env", "declare", "--", name, "collections:Counter", url=redis_url), 2, name)


def test_debug_shows_the_traceback(redis_url: str) -> None:
    done = envq("env", "show", "model", "--debug", url=redis_url)
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("envq: ")


def test_fields_of_a_job_in_a_log_format_are_empty_between_jobs(redis_url: str, tmp_path: Path) -> None:
    style = "%(levelname)s [%(job_id)s] %(message)s"
    done = envq("worker", "--burst", "--log-format", style, url=redis_url, cwd=tmp_path)
    assert done.returncode == 0
    assert "INFO [] queues: default" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_mistake() -> None:
    command = " ".join([*COMMAND, "worker", "--help", "|", "head", "-c", "1"])
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=30, check=False)
    assert done.stderr == ""
