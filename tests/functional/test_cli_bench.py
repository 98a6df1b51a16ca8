"""`envq bench`, tiny: its figures are complete, and nothing of it is left in Redis, however it ends."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import redis
from support.cli import COMMAND, assert_one_line, envq
from support.processes import Process
from support.servers import Server, free_port
from support.waiting import eventually
from support.workers import WorkerProcess

pytestmark = pytest.mark.timeout(120)
TINY = ("--jobs", "20")
PATIENCE_SECONDS = 60.0


def bench(*arguments: str, url: str, **more: Any) -> CompletedProcess[str]:
    return envq("bench", *TINY, *arguments, url=url, timeout=PATIENCE_SECONDS, **more)


def document(done: CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def keys(client: redis.Redis) -> set[bytes]:
    return set(client.scan_iter()) - {b"rq:clean_groups"}  # RQ's mark, for ten minutes, that somebody cleaned them


def test_the_document_is_complete_and_nothing_is_left(
    redis_url: str, redis_client: redis.Redis, tmp_path: Path
) -> None:
    redis_client.rpush("rq:queue:reports", "a")
    options = ("--variable", "reset", "--payload", "300", "--job-ms", "1", "--executors", "3")
    found = document(bench("--json", *options, url=redis_url, env={"HOME": str(tmp_path)}, cwd=tmp_path))

    assert set(found) == {"machine", "versions", "settings", "figures", "warnings"}
    assert set(found["machine"]) == {"cpu", "cores", "memory_mib", "os"}
    assert set(found["versions"]) == {"python", "envq", "rq", "redis_py", "hiredis", "server"}
    assert set(found["versions"]["server"]) == {"name", "version"}
    settings = found["settings"]
    assert (settings["variable"], settings["payload"], settings["job_ms"], settings["executors"]) == (
        "reset",
        300,
        1,
        3,
    )

    figures = found["figures"]
    assert set(figures) == {"round_trip", "enqueue_one_by_one", "enqueue_in_bulk", "latency", "drain"}
    for name in ("enqueue_one_by_one", "enqueue_in_bulk"):
        assert figures[name]["jobs"] == 20
        assert figures[name]["jobs_per_s"] > 0
    for name in ("round_trip", "latency"):
        assert 0 < figures[name]["p50_ms"] <= figures[name]["p99_ms"]
    assert [drain["executors"] for drain in figures["drain"]] == [1, 3]
    for drain in figures["drain"]:
        assert drain["jobs"] == 20
        assert drain["jobs_per_s"] > 0
        assert drain["redis_cpu_us_per_job"] > 0
        assert drain["commands_per_job"] == pytest.approx(sum(drain["commands"].values()), abs=0.1)

    assert keys(redis_client) == {b"rq:queue:reports"}
    assert redis_client.lrange("rq:queue:reports", 0, -1) == [b"a"]
    assert list(tmp_path.iterdir()) == []


def test_people_get_a_table_through_a_proxy_as_well(redis_url: str, redis_client: redis.Redis) -> None:
    done = bench("--rtt-ms", "1", "--executors", "1", url=redis_url)
    assert done.returncode == 0, done.stderr
    assert "every round trip takes 1 ms longer" in done.stdout
    lines = [re.split(r"\s{2,}", line) for line in done.stdout.splitlines()]
    assert [line[:2] for line in lines if line[0].startswith("drain")] == [["drain, 1 executor", "20"]]
    assert keys(redis_client) == set()


def test_other_clients_of_the_server_are_warned_of(redis_url: str, redis_client: redis.Redis) -> None:
    redis_client.ping()
    done = bench("--json", "--executors", "1", url=redis_url)
    assert "the server also serves others" in done.stderr
    assert "the server also serves others" in document(done)["warnings"][0]


@pytest.mark.parametrize("variable", ["identity", "reset", "rebuild"])
def test_running_workers_are_measured_and_go_on_as_before(
    variable: str, worker: Callable[..., WorkerProcess], redis_url: str, redis_client: redis.Redis
) -> None:
    running = worker("web", "-w", "2", "--no-scheduler", executors=2)
    eventually(lambda: redis_client.zcard("envq:default:executors") == 2)
    before = keys(redis_client)
    arguments = ("--no-worker", "--queue", "web", "--variable", variable)
    found = document(bench("--json", *arguments, url=redis_url))
    assert [drain["executors"] for drain in found["figures"]["drain"]] == [2]
    assert running.running
    # What stays is the deployment's own: its log of events, and the mark by which workers see that variables changed.
    assert keys(redis_client) - before <= {b"envq:default:events", b"envq:default:generation"}
    assert redis_client.smembers("rq:queues") == set()


def test_jobs_of_others_stay_in_a_queue_that_is_measured(
    worker: Callable[..., WorkerProcess], redis_url: str, redis_client: redis.Redis
) -> None:
    worker("web")
    redis_client.sadd("rq:queues", "rq:queue:web")
    redis_client.zadd("rq:failed:web", {"somebody's": 9e9})
    document(bench("--json", "--no-worker", "--queue", "web", url=redis_url))
    assert redis_client.smembers("rq:queues") == {b"rq:queue:web"}
    assert redis_client.zrange("rq:failed:web", 0, -1) == [b"somebody's"]
    assert not redis_client.exists("rq:finished:web")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing_behind(
    number: signal.Signals, start_process: Callable[..., Process], redis_url: str, redis_client: redis.Redis
) -> None:
    process = start_process([*COMMAND, "bench", "--jobs", "3000", "--url", redis_url])
    eventually(lambda: any(redis_client.scan_iter("rq:finished:envq-bench-*")), timeout=PATIENCE_SECONDS)
    process.send(number)
    assert process.wait(30.0) == 130, process.output
    assert keys(redis_client) == set()
    eventually(lambda: not process.descendants())


def test_interrupted_it_takes_its_jobs_back_from_running_workers(
    start_process: Callable[..., Process],
    worker: Callable[..., WorkerProcess],
    redis_url: str,
    redis_client: redis.Redis,
) -> None:
    worker("web")
    command = [*COMMAND, "bench", "--no-worker", "--queue", "web", "--quick", "--jobs", "2000", "--job-ms", "20"]
    process = start_process([*command, "--url", redis_url])
    eventually(lambda: redis_client.llen("rq:queue:web") > 1000, timeout=PATIENCE_SECONDS)
    process.send(signal.SIGINT)
    assert process.wait(30.0) == 130, process.output
    assert not any(redis_client.scan_iter("rq:job:*"))
    assert not redis_client.exists("rq:queue:web", "rq:finished:web", "rq:wip:web")


def test_a_worker_that_dies_ends_it_with_one_sentence_and_nothing_left(
    start_process: Callable[..., Process], redis_url: str, redis_client: redis.Redis
) -> None:
    process = start_process([*COMMAND, "bench", "--jobs", "3000", "--url", redis_url])
    eventually(lambda: any(redis_client.scan_iter("rq:finished:envq-bench-*")), timeout=PATIENCE_SECONDS)
    (executor,) = redis_client.scan_iter("envq:envq-bench-*:executor:*")
    info = json.loads(redis_client.hget(executor, "info") or b"{}")
    os.kill(info["supervisor_pid"], signal.SIGKILL)
    assert process.wait(30.0) == 1, process.output
    assert "the worker ended with code -9" in process.output
    assert keys(redis_client) == set()


def test_jobs_that_fail_end_it_with_their_error_and_nothing_left(
    worker: Callable[..., WorkerProcess], redis_url: str, redis_client: redis.Redis, tmp_path: Path
) -> None:
    (tmp_path / "refusing.py").write_text("def refuse(context, call_next):\n    raise RuntimeError('not today')\n")
    worker("web", "--no-scheduler", "-P", str(tmp_path), "--middleware", "refusing:refuse")
    assert_one_line(bench("--no-worker", "--queue", "web", url=redis_url), 1, "RuntimeError: not today")
    assert not any(redis_client.scan_iter("rq:job:*"))
    assert not redis_client.exists("rq:queue:web", "rq:failed:web", "rq:queues")


def test_a_variable_that_cannot_be_built_ends_it_with_the_reason(
    worker: Callable[..., WorkerProcess], redis_url: str, redis_client: redis.Redis, tmp_path: Path
) -> None:
    hiding = (
        "import sys\nsys.modules['envq.cli.benchmark'] = None\ndef pass_on(context, call_next): return call_next()\n"
    )
    (tmp_path / "hiding.py").write_text(hiding)
    worker("web", "--no-scheduler", "-P", str(tmp_path), "--middleware", "hiding:pass_on")
    done = bench("--no-worker", "--queue", "web", "--variable", "reset", url=redis_url)
    assert_one_line(done, 1, "its variable is failed", "envq.cli.benchmark")
    assert not redis_client.exists("envq:default:declarations")


def test_a_user_who_may_not_scan_is_told_so(own_server: Callable[..., Server]) -> None:
    server = own_server()
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "limited", "on", ">pw", "~*", "&*", "+@all", "-scan")
        done = bench(url=server.url().replace("//", "//limited:pw@"))
        assert_one_line(done, 4, "SCAN", "--no-worker")
        assert keys(client) == set()


def test_nothing_starts_where_workers_are_suspended(redis_url: str, redis_client: redis.Redis) -> None:
    redis_client.set("rq:suspended", 1)
    assert_one_line(bench(url=redis_url), 4, "suspended", "rq resume")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--no-worker"], 2, "--queue NAME"),
        (["--queue", "web"], 2, "--no-worker"),
        (["--no-worker", "--queue", "web", "-w", "2"], 2, "--executors"),
        (["--no-worker", "--queue", "nobody"], 4, "no executor listens on queue 'nobody'"),
        (["--jobs", "0"], 2, "--jobs"),
        (["--job-ms", "-1"], 2, "--job-ms"),
        (["--variable", "forget"], 2, "--variable"),
        (["--payload", "99999999"], 4, "ENVQ_MAX_PAYLOAD_BYTES"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], code: int, said: str, redis_url: str) -> None:
    assert_one_line(envq("bench", *arguments, url=redis_url), code, said)


def test_tls_cannot_be_delayed_and_no_server_is_asked() -> None:
    url = f"rediss://127.0.0.1:{free_port()}/0"
    assert_one_line(envq("bench", "--rtt-ms", "2", url=url), 4, "--rtt-ms cannot delay", "rediss://")
