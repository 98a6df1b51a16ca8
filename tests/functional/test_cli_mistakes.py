"""A mistake at the command line: one line that says what to do, no traceback, the documented exit code."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from support.cli import COMMAND, assert_one_line, envq
from support.servers import Server, free_port


@pytest.mark.parametrize("command", [["info"], ["worker"], ["env", "list"], ["env", "wait", "model"]])
def test_no_server(command: list[str], tmp_path: Path) -> None:
    done = envq(*command, url=f"redis://127.0.0.1:{free_port()}/0", cwd=tmp_path)
    assert_one_line(done, 3, "cannot reach Redis", "envq dev")


@pytest.mark.parametrize("command", ["info", "worker"])
def test_a_server_that_is_not_there_is_told_with_the_source_of_its_url(command: str, tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    assert_one_line(envq(command, "--url", url, cwd=tmp_path), 3, "comes from --url")
    assert_one_line(envq(command, env={"REDIS_URL": url}, cwd=tmp_path), 3, "comes from REDIS_URL")


@pytest.mark.parametrize("command", [["info"], ["worker"]])
def test_wrong_password(command: list[str], own_server: Callable[..., Server], tmp_path: Path) -> None:
    server = own_server()
    with server.client() as client:
        client.config_set("requirepass", "right")
    url = server.url().replace("redis://", "redis://:wrong@")
    done = envq(*command, url=url, cwd=tmp_path)
    assert_one_line(done, 3, "refuses the user name or password")
    assert "wrong@" not in done.stderr


@pytest.mark.parametrize("key", ["executors", "generation", "declarations", "settle", "events"])
def test_a_key_that_somebody_else_uses(key: str, redis_url: str, redis_client: redis.Redis, tmp_path: Path) -> None:
    redis_client.sadd(f"envq:default:{key}", "theirs")
    done = envq("worker", url=redis_url, cwd=tmp_path)
    assert_one_line(done, 4, f"the key envq:default:{key} holds a set", "delete it", "--namespace")
    assert redis_client.smembers(f"envq:default:{key}") == {b"theirs"}


@pytest.mark.parametrize("seconds", ["1.9", "soon", "1e9"])
def test_a_lease_that_nobody_could_keep(seconds: str, tmp_path: Path) -> None:
    assert_one_line(envq("worker", "--lease", seconds, cwd=tmp_path), 2, "--lease")
    assert_one_line(envq("worker", env={"ENVQ_LEASE": seconds}, cwd=tmp_path), 4, "ENVQ_LEASE")


@pytest.mark.parametrize("command", [["info"], ["worker"], ["env", "list"], ["health"]])
def test_a_url_that_is_none(command: list[str], tmp_path: Path) -> None:
    assert_one_line(envq(*command, url="http://localhost", cwd=tmp_path), 4, "is not a Redis URL")


def test_unknown_flag() -> None:
    assert_one_line(envq("worker", "--wrkers", "2"), 2, "--wrkers", "envq worker --help")


def test_unknown_command() -> None:
    assert_one_line(envq("wroker"), 2, "wroker", "envq --help")


def test_a_bad_value_from_the_environment_names_its_variable() -> None:
    assert_one_line(envq("worker", env={"ENVQ_WORKERS": "two"}), 4, "ENVQ_WORKERS")


def test_a_bad_value_that_was_typed_is_a_usage_error() -> None:
    assert_one_line(envq("worker", "-w", "0"), 2, "--workers")


@pytest.mark.parametrize("command", ["show", "remove", "rebuild"])
def test_a_variable_nobody_declared(command: str, redis_url: str) -> None:
    assert_one_line(envq("env", command, "model", url=redis_url), 2, "'model' is not declared")


@pytest.mark.parametrize("command", ["show", "remove", "rebuild"])
def test_a_misspelt_variable_is_answered_with_the_one_meant(command: str, redis_url: str) -> None:
    envq("env", "declare", "model", "collections:Counter", url=redis_url)
    done = envq("env", command, "modle", url=redis_url)
    assert_one_line(done, 2, "'modle' is not declared; did you mean 'model'? (declared: model)")


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("no_such_module:name", "No module named 'no_such_module'"),
        ("json:no_such_name", "no_such_name"),
        ("json", "module:name"),
        ("json:__name__", "not callable"),
    ],
)
def test_bad_middleware(path: str, complaint: str, redis_url: str, tmp_path: Path) -> None:
    done = envq("worker", "--middleware", path, url=redis_url, cwd=tmp_path)
    assert_one_line(done, 4, path, complaint)


def test_a_folder_that_is_none(redis_url: str) -> None:
    assert_one_line(envq("worker", "-P", "/no/such/folder", url=redis_url), 4, "/no/such/folder")


def test_a_log_format_that_logging_cannot_use(redis_url: str) -> None:
    assert_one_line(envq("worker", "--log-format", "%(message", url=redis_url), 4, "--log-format")


@pytest.mark.parametrize("name", ["not-an-identifier", "_private", "class"])
def test_a_name_no_variable_can_have(name: str, redis_url: str) -> None:
    assert_one_line(envq("env", "declare", "--", name, "collections:Counter", url=redis_url), 2, name)


def test_a_kind_of_event_that_there_is_not(redis_url: str) -> None:
    assert_one_line(envq("monitor", "-k", "job.fialed", url=redis_url), 2, "did you mean 'job.failed'?", "--kind")


def test_code_that_is_no_path(redis_url: str) -> None:
    assert_one_line(envq("env", "declare", "model", "just_words", url=redis_url), 4, "package.module:callable")


def test_a_namespace_with_foreign_signs(redis_url: str) -> None:
    assert_one_line(envq("info", "--namespace", "a:b", url=redis_url), 4, "a:b")


def test_a_bad_configuration_file(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.envq]\nwokers = 2\n")
    assert_one_line(envq("worker", cwd=tmp_path), 4, "wokers", "pyproject.toml")


def test_debug_shows_the_traceback(redis_url: str) -> None:
    done = envq("env", "show", "model", "--debug", url=redis_url)
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("envq: ")


def test_a_missing_script_for_dev(tmp_path: Path) -> None:
    assert_one_line(envq("dev", "no_such.py", cwd=tmp_path), 4, "no_such.py")


def test_a_reader_that_goes_away_is_no_mistake() -> None:
    command = " ".join([*COMMAND, "worker", "--help", "|", "head", "-c", "1"])
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=30, check=False)
    assert done.stderr == ""
