"""What a worker hears over pub/sub: RQ's commands, news of declarations, and garbage."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
import rq
from rq.command import send_kill_horse_command, send_shutdown_command, send_stop_job_command
from support import supervised
from support.processes import Process
from support.waiting import eventually

from envq.store.keys import Keys, job, worker_commands

Start = Callable[..., Process]


@pytest.fixture
def jobs(redis_client: redis.Redis, namespace: str) -> rq.Queue:
    """The queue "default" of the test's namespace, as a stock client sees it."""
    return rq.Queue(f"{namespace}:default", connection=redis_client)


@pytest.fixture
def keys(redis_client: redis.Redis, namespace: str) -> Keys:
    return Keys(namespace, redis_client.connection_pool.connection_kwargs["db"])


def only_executor(client: redis.Redis, namespace: str) -> str:
    return eventually(lambda: supervised.executors_of(client, namespace) or False)[0]


def stop(client: redis.Redis, running: rq.job.Job) -> bool:
    send_stop_job_command(client, running.id)
    return running.get_status() == "stopped"


def test_running_job_is_stopped_on_command(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis, jobs: rq.Queue
) -> None:
    running = jobs.enqueue("time.sleep", 1000)
    start_process(supervised.command(redis_url, namespace))
    eventually(lambda: running.get_status() == "started")
    send_stop_job_command(redis_client, running.id)
    eventually(lambda: running.get_status() == "stopped", timeout=4.0)
    after = jobs.enqueue("time.sleep", 0)
    eventually(lambda: after.get_status() == "finished")


def test_job_that_ignores_the_request_is_stopped_by_force(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis, jobs: rq.Queue
) -> None:
    running = jobs.enqueue("time.sleep", 1000)
    redis_client.rpush(supervised.acts(namespace), "run")
    start_process(supervised.command(redis_url, namespace, stand_in=True, kill_grace_s=0.3))
    eventually(lambda: redis_client.exists(supervised.at_work(namespace)) == 1)
    name = redis_client.zrange(Keys(namespace).executors, 0, -1)[0].decode()
    redis_client.publish(worker_commands(name), f'{{"command": "stop-job", "job_id": "{running.id}"}}')
    eventually(lambda: redis_client.lrange(Keys(namespace).settle, 0, -1) == [running.id.encode()])
    assert b'"stopped"' in redis_client.hget(job(running.id), "envq_settle")


def test_command_for_another_job_is_ignored(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis, jobs: rq.Queue
) -> None:
    running = jobs.enqueue("time.sleep", 0.5)
    worker = start_process(supervised.command(redis_url, namespace))
    eventually(lambda: supervised.begun(worker, running))
    name = only_executor(redis_client, namespace)
    redis_client.publish(worker_commands(name), '{"command": "stop-job", "job_id": "another"}')
    eventually(lambda: "not working on job another" in worker.output)
    eventually(lambda: running.get_status() == "finished")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xfe\x00",
        b"{",
        b"[1]",
        b'"text"',
        b"{}",
        b'{"command": ["shutdown"]}',
        b'{"command": "dance"}',
        b"[" * 9999,
    ],
)
def test_garbage_on_a_command_channel_is_survived(
    start_process: Start,
    redis_url: str,
    namespace: str,
    redis_client: redis.Redis,
    jobs: rq.Queue,
    keys: Keys,
    garbage: bytes,
) -> None:
    worker = start_process(supervised.command(redis_url, namespace))
    name = only_executor(redis_client, namespace)
    eventually(lambda: redis_client.publish(worker_commands(name), garbage) == 1)
    redis_client.publish(keys.env_channel, garbage)
    eventually(lambda: "ignored a message" in worker.output)
    running = jobs.enqueue("time.sleep", 1000)
    eventually(lambda: supervised.begun(worker, running))
    send_stop_job_command(redis_client, running.id)
    eventually(lambda: running.get_status() == "stopped", timeout=4.0)


def test_commands_work_again_after_the_pubsub_connection_was_cut(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis, jobs: rq.Queue, keys: Keys
) -> None:
    worker = start_process(supervised.command(redis_url, namespace))
    name = only_executor(redis_client, namespace)
    channels = [worker_commands(name), keys.env_channel]
    eventually(lambda: all(count == 1 for _, count in redis_client.pubsub_numsub(*channels)))
    for client in redis_client.client_list(_type="pubsub"):
        if client["db"] == str(keys.database):
            redis_client.client_kill_filter(_id=client["id"])
    running = jobs.enqueue("time.sleep", 1000)
    eventually(lambda: supervised.begun(worker, running))
    assert worker.running

    def told_again() -> bool:
        # The client library subscribes once more on the way to the error, so that a count of 1 may be a last gasp.
        send_stop_job_command(redis_client, running.id)
        return running.get_status() == "stopped"

    eventually(told_again)


def test_all_executors_are_woken_by_an_announcement_and_after_a_new_subscription(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis, keys: Keys
) -> None:
    start_process(supervised.command(redis_url, namespace, stand_in=True, executors=2, scheduler=False))
    eventually(lambda: redis_client.pubsub_numsub(keys.env_channel)[0][1] == 1)
    eventually(lambda: redis_client.zcard(keys.executors) == 2)

    def count() -> int:
        return int(redis_client.get(supervised.woken(namespace)) or 0)

    before = count()
    redis_client.publish(keys.env_channel, "cartpole")
    eventually(lambda: count() >= before + 2)
    before = count()
    for client in redis_client.client_list(_type="pubsub"):
        if client["db"] == str(keys.database):
            redis_client.client_kill_filter(_id=client["id"])
    eventually(lambda: count() >= before + 2)


def test_build_of_a_removed_variable_is_ended(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis, keys: Keys
) -> None:
    redis_client.hset(keys.declarations, "cartpole", "{}")
    redis_client.rpush(supervised.acts(namespace), "build cartpole")
    worker = start_process(supervised.command(redis_url, namespace, stand_in=True, scheduler=False))
    eventually(lambda: redis_client.llen(supervised.acts(namespace)) == 0)
    eventually(lambda: redis_client.pubsub_numsub(keys.env_channel)[0][1] == 1)
    redis_client.hdel(keys.declarations, "cartpole")
    redis_client.publish(keys.env_channel, "cartpole")
    eventually(lambda: "while it built cartpole version 1" in worker.output, timeout=5.0)
    assert worker.running


def test_worker_whose_executors_are_all_shut_down_exits(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis
) -> None:
    worker = start_process(supervised.command(redis_url, namespace))
    send_shutdown_command(redis_client, only_executor(redis_client, namespace))
    assert worker.wait() == 0


def test_kill_command_ends_the_process_and_the_job_runs_again(
    start_process: Start, redis_url: str, namespace: str, redis_client: redis.Redis, jobs: rq.Queue
) -> None:
    running = jobs.enqueue("time.sleep", 1)
    start_process(supervised.command(redis_url, namespace))
    eventually(lambda: running.get_status() == "started")
    send_kill_horse_command(redis_client, only_executor(redis_client, namespace))
    eventually(lambda: redis_client.hget(job(running.id), "envq_crashes") == b"1")
    eventually(lambda: running.get_status() == "finished")
