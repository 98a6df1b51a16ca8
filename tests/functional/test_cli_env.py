"""`envq env`: declare by path, look, wait, rebuild, remove, prune."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from support.cli import COMMAND, assert_one_line, envq
from support.processes import Process
from support.waiting import eventually
from support.workers import WorkerProcess

MODULE = """
import pathlib
LOG = pathlib.Path({log!r})

def make():
    with LOG.open("a") as log:
        log.write("made\\n")
    return {{}}

def end(value):
    with LOG.open("a") as log:
        log.write("ended\\n")

def fail():
    raise RuntimeError("no weights here")
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.txt"


@pytest.fixture
def at_work(worker: Callable[..., WorkerProcess], tmp_path: Path, log: Path) -> WorkerProcess:
    """A worker that can import `gear`, which nobody else can."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "gear.py").write_text(MODULE.format(log=str(log)))
    return worker("-P", str(tmp_path / "modules"))


def test_code_is_declared_by_path_without_importing_it_here(at_work: WorkerProcess, redis_url: str, log: Path) -> None:
    done = envq("env", "declare", "thing", "gear:make", "--teardown", "gear:end", url=redis_url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "thing v1 declared\n", "")
    assert envq("env", "wait", "thing", "--timeout", "20", url=redis_url).returncode == 0
    assert log.read_text() == "made\n"


def test_declaring_again_says_what_changed(redis_url: str) -> None:
    def declare(*arguments: str) -> str:
        return envq("env", "declare", "thing", *arguments, url=redis_url).stdout.strip()

    assert declare("gear:make") == "thing v1 declared"
    assert declare("gear:make") == "thing v1 is declared already, nothing changed"
    assert declare("gear:make", "--init-timeout", "5") == "thing v1: options changed"
    assert declare("gear:other") == "thing v2 replaces v1"
    assert declare("gear:third", "--version", "7") == "thing v7 replaces v2"
    assert declare("gear:fourth", "--version", "6") == "thing v7 stays: a lower version does not replace it"


def test_list_and_show_tell_version_state_and_origin(at_work: WorkerProcess, redis_url: str) -> None:
    envq("env", "declare", "thing", "gear:make", url=redis_url)
    envq("env", "wait", "thing", "--timeout", "20", url=redis_url)
    text = envq("env", "list", url=redis_url).stdout
    for part in ("thing", "v1", "ready 1/1", "by reference"):
        assert part in text
    shown = json.loads(envq("env", "show", "thing", "--json", url=redis_url).stdout)
    assert [each["state"] for each in shown["executors"]] == ["ready"]
    assert [each["name"] for each in json.loads(envq("env", "list", "--json", url=redis_url).stdout)] == ["thing"]


def test_a_failed_build_ends_the_wait_and_its_traceback_is_shown(at_work: WorkerProcess, redis_url: str) -> None:
    envq("env", "declare", "thing", "gear:fail", url=redis_url)
    assert_one_line(envq("env", "wait", "thing", url=redis_url), 1, "thing failed", "no weights here")
    # It is tried again meanwhile, and shows no error while it is.
    eventually(lambda: "RuntimeError: no weights here" in envq("env", "show", "thing", url=redis_url).stdout)


def test_a_wait_whose_time_is_up_says_what_is_missing(redis_url: str) -> None:
    envq("env", "declare", "thing", "gear:make", url=redis_url)
    done = envq("env", "wait", "thing", "--timeout", "0.2", url=redis_url)
    assert_one_line(done, 1, "not within 0.2 s", "no executor builds it")


def test_a_wait_begins_before_anybody_declares(
    at_work: WorkerProcess, redis_url: str, start_process: Callable[..., Process]
) -> None:
    waiting = start_process([*COMMAND, "env", "wait", "thing"], env={"ENVQ_URL": redis_url})
    with redis.Redis.from_url(redis_url) as client:
        eventually(lambda: _reads_declarations(client))
    assert waiting.running
    envq("env", "declare", "thing", "gear:make", url=redis_url)
    assert waiting.wait(20) == 0


def _reads_declarations(client: redis.Redis) -> bool:
    return any(each["cmd"] in ("hgetall", "evalsha", "zrange", "exec") for each in client.client_list())


def test_rebuild_builds_anew_on_every_executor(at_work: WorkerProcess, redis_url: str, log: Path) -> None:
    envq("env", "declare", "thing", "gear:make", "--teardown", "gear:end", url=redis_url)
    envq("env", "wait", "thing", "--timeout", "20", url=redis_url)
    assert envq("env", "rebuild", "thing", "--wait", "--timeout", "20", url=redis_url).returncode == 0
    assert log.read_text().count("made") == 2


def test_rebuild_lifts_a_quarantine(redis_url: str, redis_client: redis.Redis) -> None:
    envq("env", "declare", "thing", "gear:make", url=redis_url)
    redis_client.hset("envq:default:tries:thing:1", "host/dead", "1")
    envq("env", "rebuild", "thing", url=redis_url)
    assert not redis_client.exists("envq:default:tries:thing:1")


def test_remove_tears_down_everywhere(at_work: WorkerProcess, redis_url: str, log: Path) -> None:
    envq("env", "declare", "thing", "gear:make", "--teardown", "gear:end", url=redis_url)
    envq("env", "wait", "thing", "--timeout", "20", url=redis_url)
    assert envq("env", "remove", "thing", "--wait", "--timeout", "20", url=redis_url).returncode == 0
    assert log.read_text() == "made\nended\n"
    assert json.loads(envq("env", "list", "--json", url=redis_url).stdout) == []


def test_prune_forgets_the_dead_but_neither_the_living_nor_claims_nor_code(
    at_work: WorkerProcess, redis_url: str, redis_client: redis.Redis
) -> None:
    envq("env", "declare", "thing", "gear:make", url=redis_url)
    redis_client.zadd("envq:default:executors", {"dead": 1, "dead-with-jobs": 1})
    redis_client.rpush("envq:default:claims:dead-with-jobs", "job-1")
    redis_client.hset("envq:default:tries:thing:1", "host/dead", "1")
    redis_client.hset("envq:default:tries:gone:4", "host/dead", "1")
    code = set(redis_client.keys("envq:default:code:*"))
    pruned = json.loads(envq("env", "prune", "--json", url=redis_url).stdout)
    assert pruned["build_marks"] == ["gone v4"]
    assert "dead-with-jobs" not in pruned["executors"]
    assert not redis_client.zscore("envq:default:executors", "dead")
    assert redis_client.exists("envq:default:tries:thing:1")
    assert set(redis_client.keys("envq:default:code:*")) == code
    assert set(at_work.executors()) <= {name.decode() for name in redis_client.zrange("envq:default:executors", 0, -1)}
