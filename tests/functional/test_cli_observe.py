"""`envq info` and `envq health`: cheap, read-only, never unpickling."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable

import redis
from support.cli import envq
from support.servers import free_port
from support.workers import WorkerProcess

WELL = ("--ready",)


def test_info_shows_server_queues_executors_and_variables(
    worker: Callable[..., WorkerProcess], redis_url: str, redis_client: redis.Redis
) -> None:
    running = worker("high")
    redis_client.sadd("rq:queues", "rq:queue:reports")
    redis_client.rpush("rq:queue:reports", "a", "b")
    redis_client.zadd("rq:failed:reports", {"c": 1})
    envq("env", "declare", "table", "collections:Counter", url=redis_url)
    shown = json.loads(envq("info", "--json", url=redis_url).stdout)
    queues = {each["name"]: each for each in shown["queues"]}
    assert (queues["reports"]["queued"], queues["reports"]["failed"]) == (2, 1)
    assert "high" in queues
    assert [each["name"] for each in shown["executors"]] == running.executors()
    assert [each["name"] for each in shown["variables"]] == ["table"]
    assert shown["server"]["version"]
    text = envq("info", url=redis_url).stdout
    assert "reports  2" in text
    assert running.executors()[0] in text


def test_info_changes_nothing_and_runs_no_code_from_redis(redis_url: str, redis_client: redis.Redis) -> None:
    """Stock tools would move the abandoned job to the failed ones, and unpickle the meta of a started one."""
    redis_client.sadd("rq:queues", "rq:queue:default")
    redis_client.zadd("rq:wip:default", {"abandoned:1": 1})
    redis_client.hset("rq:job:abandoned", mapping={"status": "started", "meta": b"not a pickle", "origin": "default"})
    assert envq("info", url=redis_url).returncode == 0
    assert redis_client.zrange("rq:wip:default", 0, -1) == [b"abandoned:1"]
    assert not redis_client.exists("rq:failed:default")


def test_health_is_0_with_a_living_executor_on_this_host_and_1_without(
    worker: Callable[..., WorkerProcess], redis_url: str
) -> None:
    nobody = envq("health", url=redis_url)
    assert (nobody.returncode, nobody.stdout.split(":")[0]) == (1, "gone")
    running = worker("--name", "web")
    assert envq("health", url=redis_url).returncode == 0
    assert envq("health", "--ready", "--name", "web", url=redis_url).returncode == 0
    assert envq("health", "--name", "other", url=redis_url).returncode == 1
    running.kill()


def test_health_tells_starting_from_ready_and_degraded(
    worker: Callable[..., WorkerProcess], redis_url: str, redis_client: redis.Redis
) -> None:
    worker()
    key = next(iter(redis_client.scan_iter("envq:default:executor:*")))

    def state(*arguments: str) -> tuple[str, int]:
        done = envq("health", *arguments, "--json", url=redis_url)
        return json.loads(done.stdout)["state"], done.returncode

    assert state("--ready") == ("ready", 0)
    envq("env", "declare", "broken", "no_such_module:make", url=redis_url)
    envq("env", "wait", "broken", "--timeout", "20", url=redis_url)
    assert state("--ready") == ("degraded", 0)
    assert platform.node().encode() in (redis_client.hget(key, "info") or b"")


def test_health_of_an_unreachable_server_is_1(tmp_path: object) -> None:
    done = envq("health", url=f"redis://127.0.0.1:{free_port()}/0")
    assert done.returncode == 1
    assert done.stdout.startswith("unknown: cannot reach Redis")


def test_a_starting_executor_is_alive_but_not_ready(
    worker: Callable[..., WorkerProcess], redis_url: str, redis_client: redis.Redis
) -> None:
    envq("env", "declare", "slow", "time:sleep", url=redis_url)
    envq("env", "remove", "slow", url=redis_url)
    running = worker("--name", "slow")
    key = f"envq:default:executor:{running.executors()[0]}"
    redis_client.hset(key, "state", "building")
    assert envq("health", "--name", "slow", url=redis_url).returncode == 0
