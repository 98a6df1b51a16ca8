"""C14: an initializer that fails, hangs or kills its process never loops, never disappears, and harms no other."""

from __future__ import annotations

import itertools
import os
import platform
import subprocess
import time
from collections.abc import Callable

import pytest
from support.cli import envq as command
from support.deployment import Deployment
from support.diary import Diary
from support.gate import Gate
from support.jobs import enqueue, run
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq.driver.client import Client
from envq.environment import env
from envq.store.records import VariableState

Declare = Callable[..., None]
StartWorker = Callable[..., WorkerProcess]
States = Callable[[str], list[VariableState]]
RETRIED_AFTER_S = (1.0, 2.0, 4.0, 8.0)


def fails_until(client: Client, key: str) -> Callable[[], str]:
    """An initializer that raises until the key exists."""
    url = client.settings.url

    def make() -> str:
        import redis

        with redis.Redis.from_url(url) as connection:
            if not connection.exists(key):
                raise ConnectionError("the model store is down")
        return "built"

    return make


def test_a_job_that_reads_it_fails_at_once_with_the_initializers_traceback(
    deployment: Deployment, client: Client, states: States
) -> None:
    def load_weights() -> object:
        raise ValueError("no such file: weights.bin")

    env.model = envq.EnvironmentVariable(lambda: load_weights())
    eventually(lambda: bool(states("model")) and states("model")[0].state == "failed")
    with pytest.raises(envq.JobFailed) as failed:
        run(lambda: env.model)
    text = failed.value.remote_traceback
    assert "EnvironmentVariableFailed: environment variable 'model' (version 1) could not be built" in text
    assert "in load_weights" in text
    assert text.rstrip().endswith("ValueError: no such file: weights.bin")
    assert run(lambda: "other jobs go on") == "other jobs go on"
    assert "ValueError: no such file: weights.bin" in deployment.worker.output


def test_it_is_tried_five_times_then_only_on_request(
    deployment: Deployment, client: Client, worker: StartWorker, diary: Diary, states: States
) -> None:
    write = diary.write

    def make() -> object:
        import os

        write(f"{os.getpid()} {time.time()!r}")
        raise ValueError("still broken")

    def tries() -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for pid, at in map(str.split, diary.entries):
            found.setdefault(pid, []).append(float(at))
        return found

    def given_up() -> None:
        assert states("model")[0].state == "failed"
        assert "given up after 5 tries" in deployment.worker.output

    env.model = envq.EnvironmentVariable(make)
    exiting = worker("other", "--build-failure", "exit", url=deployment.url, wait=False)
    assert exiting.wait(40) == 5
    assert "ValueError: still broken" in exiting.output
    eventually(given_up)
    assert sorted(map(len, tries().values())) == [5, 5]
    for tried_at in tries().values():
        pauses = [after - before for before, after in itertools.pairwise(tried_at)]
        assert all(pause >= wanted for pause, wanted in zip(pauses, RETRIED_AFTER_S, strict=True)), pauses
    with pytest.raises(envq.JobFailed, match="envq env rebuild model"):
        run(lambda: env.model)
    assert command("env", "rebuild", "model", url=deployment.url).returncode == 0
    eventually(lambda: len(diary.entries) > 10)
    env.model = envq.EnvironmentVariable(lambda: "mended", lambda value: value)
    assert run(lambda: env.model) == "mended"


def test_it_is_tried_again_until_it_works(deployment: Deployment, client: Client, states: States) -> None:
    env.model = envq.EnvironmentVariable(fails_until(client, "test:up"), lambda value: value)
    eventually(lambda: bool(states("model")) and states("model")[0].state == "failed")
    client.connection.set("test:up", 1)
    envq.wait_ready("model", timeout=20)
    assert run(lambda: env.model) == "built"


def test_a_required_one_keeps_its_queues_waiting_and_no_others(client: Client, worker: StartWorker) -> None:
    env.model = envq.EnvironmentVariable(
        fails_until(client, "test:up"), lambda value: value, queues=["gated"], required=True
    )
    worker("gated", "open")
    waiting = enqueue(lambda: env.model, queue="gated")
    for _ in range(3):
        assert run(lambda: "open", queue="open") == "open"
    assert waiting.get_status().value == "queued"
    client.connection.set("test:up", 1)
    assert envq.get(waiting, timeout=30) == "built"


def test_a_required_one_without_queues_keeps_all_jobs_waiting(client: Client, worker: StartWorker) -> None:
    env.model = envq.EnvironmentVariable(fails_until(client, "test:up"), lambda value: value, required=True)
    waiting = enqueue(lambda: env.model)
    worker()

    def waits() -> None:
        assert [executor.state for executor in client.executors.all()] == ["waiting"]

    eventually(waits)
    assert waiting.get_status().value == "queued"
    client.connection.set("test:up", 1)
    assert envq.get(waiting, timeout=30) == "built"


def test_a_burst_worker_waits_for_a_required_one_that_is_tried_again(
    client: Client, worker: StartWorker, states: States
) -> None:
    env.model = envq.EnvironmentVariable(
        fails_until(client, "test:up"), lambda value: value, queues=["gated"], required=True
    )
    waiting = enqueue(lambda: env.model, queue="gated")
    burst = worker("gated", "open", "--burst", wait=False)
    eventually(lambda: [state.state for state in states("model")] == ["failed"])
    client.connection.set("test:up", 1)
    assert envq.get(waiting, timeout=30) == "built"
    assert burst.wait(20) == 0


@pytest.mark.parametrize("how", ["os._exit(1)", "os.kill(os.getpid(), 9)"])
def test_a_build_that_kills_its_process_is_quarantined_after_three_deaths(
    client: Client, worker: StartWorker, diary: Diary, states: States, how: str
) -> None:
    write = diary.write

    def make() -> object:
        import os

        write("tried")
        exec(how, {"os": os})
        return 1

    one = worker("default", "gated")
    env.poison = envq.EnvironmentVariable(make)
    env.needed = envq.EnvironmentVariable(lambda: 1, queues=["gated"], required=True)
    eventually(lambda: [state.state for state in states("poison")] == ["quarantined"], timeout=30)
    assert diary.entries == ["tried"] * 3
    assert one.running
    assert run(lambda: env.needed, queue="gated") == 1
    with pytest.raises(
        envq.JobFailed, match=r"(?s)'poison' \(version 1\) is quarantined: its build killed 3 processes"
    ):
        run(lambda: env.poison)


def test_builds_that_begin_together_are_not_taken_for_deaths(
    client: Client, worker: StartWorker, states: States
) -> None:
    gate = Gate(client.settings.url)
    wait = gate.wait

    def make() -> str:
        wait()
        return "built"

    env.model = envq.EnvironmentVariable(make, lambda value: value)
    worker("-w", "5", executors=5)
    eventually(lambda: len(client.connection.hkeys(client.keys.tries("model", 1))) == 5)
    for _ in range(5):
        gate.open()
    envq.wait_ready("model", workers=5, timeout=20)


@pytest.mark.parametrize("way", ["rebuild on request", "removed and declared again", "other code", "both"])
def test_a_quarantine_ends_when_somebody_asks_for_another_try(
    deployment: Deployment, client: Client, states: States, way: str
) -> None:
    for number in range(3):
        client.connection.hset(client.keys.tries("poison", 1), f"{platform.node()}/executor{number}", "0")
    env.poison = envq.EnvironmentVariable(lambda: way, lambda value: value)
    eventually(lambda: [state.state for state in states("poison")] == ["quarantined"])
    if way == "rebuild on request":
        assert command("env", "rebuild", "poison", "--wait", url=deployment.url).returncode == 0
    elif way == "removed and declared again":
        del env.poison
        env.poison = envq.EnvironmentVariable(lambda: way, lambda value: value)
    else:
        env.poison = envq.EnvironmentVariable(lambda: str(way), lambda value: value)
        if way == "both":  # version 1 again, with what was left of the first version 1
            del env.poison
            env.poison = envq.EnvironmentVariable(lambda: way, lambda value: value)
    assert run(lambda: env.poison) == way


def test_required_wins_over_quarantine(client: Client, worker: StartWorker, states: States) -> None:
    def make() -> object:
        import os

        os._exit(1)

    worker("gated", "open")
    env.poison = envq.EnvironmentVariable(make, queues=["gated"], required=True)
    eventually(lambda: [state.state for state in states("poison")] == ["quarantined"], timeout=30)
    waiting = enqueue(lambda: 1, queue="gated")
    for _ in range(3):
        assert run(lambda: "open", queue="open") == "open"
    assert waiting.get_status().value == "queued"
    del env.poison
    assert envq.get(waiting, timeout=30) == 1


def test_deaths_on_two_other_hosts_are_enough(
    deployment: Deployment, client: Client, diary: Diary, states: States
) -> None:
    write = diary.write
    for host in ("one", "two"):
        for number in range(3):
            client.connection.hset(client.keys.tries("poison", 1), f"{host}/executor{number}", "0")
    env.poison = envq.EnvironmentVariable(lambda: write("tried"))
    eventually(lambda: [state.state for state in states("poison")] == ["quarantined"])
    assert "killed processes on one, two" in states("poison")[0].error
    assert diary.entries == []


def on_host(name: str) -> list[str]:
    """Run a command under another name of the host, by which envq tells hosts apart; takes root."""
    return ["unshare", "--uts", "sh", "-c", f'hostname {name} && exec "$@"', "sh"]


@pytest.mark.timeout(120)
def test_deaths_are_counted_by_host_and_after_two_hosts_nobody_tries(
    client: Client, worker: StartWorker, diary: Diary, states: States
) -> None:
    if subprocess.run([*on_host("tried"), "true"], capture_output=True, check=False).returncode:
        if "CI" in os.environ:
            pytest.fail("the name of the host cannot be changed here")
        pytest.skip("the name of the host cannot be changed here: left out")
    write = diary.write

    def make() -> object:
        import os
        import platform

        write(platform.node())
        os._exit(1)

    def quarantined(executors: int) -> bool:
        return [state.state for state in states("poison")] == ["quarantined"] * executors

    env.poison = envq.EnvironmentVariable(make)
    for number, host in enumerate(("one", "two"), start=1):
        running = worker("--no-scheduler", through=on_host(host))
        eventually(lambda: quarantined(1), timeout=40)
        assert diary.entries == (["one"] * 3 + ["two"] * 3)[: 3 * number]
        assert running.stop() == 0
    worker("--no-scheduler", through=on_host("three"))
    eventually(lambda: quarantined(1), timeout=40)
    assert "killed processes on one, two" in states("poison")[0].error
    assert len(diary.entries) == 6


def test_a_reset_by_the_initializer_that_kills_its_process_counts_as_well(
    client: Client, worker: StartWorker, diary: Diary, states: States
) -> None:
    """Only the first build of a process is marked beforehand; of later ones the supervisor tells."""
    write, url = diary.write, client.settings.url

    def make() -> object:
        import os

        import redis

        with redis.Redis.from_url(url) as connection:
            if connection.incr("test:builds") % 2 == 0:
                write("died")
                os._exit(1)
        return 1

    worker()
    env.poison = envq.EnvironmentVariable(make)
    for _ in range(3):
        envq.wait_ready("poison", timeout=20)
        deaths = len(diary.entries)
        assert run(lambda: env.poison) == 1
        eventually(lambda deaths=deaths: len(diary.entries) == deaths + 1)
    eventually(lambda: [state.state for state in states("poison")] == ["quarantined"], timeout=30)
    assert diary.entries == ["died"] * 3


def hang(write: Callable[[str], None], stubborn: bool) -> Callable[[], object]:
    def make() -> object:
        import signal

        write("hangs")
        while True:
            try:
                while True:
                    signal.pause()
            except BaseException:
                if not stubborn:
                    raise

    return make


@pytest.mark.parametrize("stubborn", [False, True], ids=["yields", "swallows every exception"])
def test_a_hung_one_is_ended_by_removing_it(client: Client, worker: StartWorker, diary: Diary, stubborn: bool) -> None:
    one = worker()
    env.model = envq.EnvironmentVariable(hang(diary.write, stubborn))
    diary.wait_for("hangs")
    began = time.monotonic()
    assert command("env", "remove", "model", "--wait", url=client.settings.url).returncode == 0
    assert run(lambda: "free") == "free"
    assert time.monotonic() - began < 5 + 2  # the command's own start and a loaded machine
    assert one.running


@pytest.mark.parametrize("way", ["removed before", "other code"])
def test_a_hung_one_is_ended_by_declaring_it_anew(
    deployment: Deployment, client: Client, diary: Diary, way: str
) -> None:
    env.model = envq.EnvironmentVariable(hang(diary.write, False))
    diary.wait_for("hangs")
    if way == "removed before":
        del env.model
    env.model = envq.EnvironmentVariable(lambda: "mended", lambda value: value)
    assert run(lambda: env.model) == "mended"


def test_a_hung_one_is_ended_by_its_init_timeout(
    deployment: Deployment, client: Client, diary: Diary, states: States
) -> None:
    env.model = envq.EnvironmentVariable(hang(diary.write, False), init_timeout=0.3)
    eventually(lambda: bool(states("model")) and states("model")[0].state == "failed")
    with pytest.raises(envq.JobFailed, match=r"(?s)'model'.*ran longer than 0\.3 s"):
        run(lambda: env.model)


def test_a_hung_one_holds_up_no_executor_but_its_own(client: Client, worker: StartWorker, diary: Diary) -> None:
    write, url = diary.write, client.settings.url

    def make() -> str:
        import signal

        import redis

        with redis.Redis.from_url(url) as connection:
            first = connection.incr("test:builds") == 1
        while first:
            signal.pause()
        return "built"

    worker("-w", "2", executors=2)
    env.model = envq.EnvironmentVariable(make, lambda value: value)
    envq.wait_ready("model", timeout=20)
    for _ in range(5):
        assert run(lambda: env.model) == "built"
    write("done")


def test_a_worker_that_is_stopped_does_not_wait_for_a_build(client: Client, worker: StartWorker, diary: Diary) -> None:
    one = worker()
    env.model = envq.EnvironmentVariable(hang(diary.write, False))
    diary.wait_for("hangs")
    assert one.stop() == 0
    assert client.connection.hgetall(client.keys.tries("model", 1)) == {}
