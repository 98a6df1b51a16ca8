"""What users of other queues ask for beyond the numbered promises: slow builds, their processes, two applications."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.deployment import Deployment
from support.diary import Diary
from support.jobs import run, run_all
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq.driver.client import Client, connect
from envq.environment import env
from envq.store.records import VariableState

Declare = Callable[..., None]
StartWorker = Callable[..., WorkerProcess]
SLOW_S = 2.0


def slow(write: Callable[[str], None]) -> Callable[[], int]:
    seconds = SLOW_S

    def make() -> int:
        import os
        import threading

        write("begun")
        threading.Event().wait(seconds)
        write("built")
        return os.getpid()

    return make


def test_a_slow_build_after_a_crash_is_waited_for(client: Client, worker: StartWorker, diary: Diary) -> None:
    """Being slow is not being dead, at the start and after a crash alike."""
    worker()
    env.model = envq.EnvironmentVariable(slow(diary.write), lambda value: value)
    first = run(lambda: env.model)
    os.kill(first, signal.SIGKILL)
    second = run(lambda: env.model)
    assert second != first
    assert diary.entries == ["begun", "built"] * 2


def test_jobs_wait_for_an_eager_build(client: Client, worker: StartWorker, diary: Diary) -> None:
    write = diary.write
    env.model = envq.EnvironmentVariable(slow(write), lambda value: value)
    jobs = [envq.task(lambda: write("job")).enqueue() for _ in range(2)]
    worker(wait=False)
    envq.get(jobs, timeout=30)
    assert diary.entries == ["begun", "built", "job", "job"]


def test_processes_that_an_initializer_started_end_with_the_executor(
    client: Client, worker: StartWorker, declare: Declare
) -> None:
    def start_helper() -> tuple[int, int]:
        import os
        import subprocess

        return os.getpid(), subprocess.Popen(["sleep", "1000"]).pid

    worker()
    declare("helper", start_helper, lambda value: value)
    executor, helper = run(lambda: env.helper)
    os.kill(executor, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{helper}").exists() or "Z" in state_of(helper))


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_two_namespaces_on_one_server_declare_the_same_name(
    client: Client, worker: StartWorker, states: Callable[[str], list[VariableState]]
) -> None:
    worker("-w", "1")
    worker("-w", "1", "--namespace", "b", wait=False)
    url = client.settings.url
    other = connect(url, namespace="b")
    env.model = envq.EnvironmentVariable(lambda: "of b", lambda value: value, queues=["default"])
    connect(url)
    env.model = envq.EnvironmentVariable(lambda: "of default", lambda value: value)

    def read() -> str:
        return env.model

    assert run_all(read, 3) == ["of default"] * 3
    connect(url, namespace="b")
    assert run_all(read, 3) == ["of b"] * 3
    assert other.declarations.get("model").digest != client.declarations.get("model").digest
    assert [state.builds for state in states("model")] == [1]


def test_an_async_client_outlives_the_jobs_that_use_it(
    deployment: Deployment, client: Client, declare: Declare, diary: Diary
) -> None:
    write = diary.write

    class AsyncClient:
        def __init__(self) -> None:
            import asyncio

            write("connected")
            self.requests: Any = asyncio.Queue()
            self.server = asyncio.ensure_future(self.serve())

        async def serve(self) -> None:
            while True:
                number, answer = await self.requests.get()
                answer.set_result(number * 2)

        async def ask(self, number: int) -> int:
            import asyncio

            answer: Any = asyncio.get_running_loop().create_future()
            await self.requests.put((number, answer))
            return await asyncio.wait_for(answer, 10)

    async def make() -> AsyncClient:
        return AsyncClient()

    async def same(value: AsyncClient) -> AsyncClient:
        return value

    declare("service", make, same)

    async def ask() -> int:
        return await env.service.ask(21)

    assert run_all(ask, 3) == [42] * 3
    assert diary.entries == ["connected"]


def test_a_name_nobody_declared_is_told_with_those_that_are(
    deployment: Deployment, client: Client, declare: Declare
) -> None:
    declare("model", lambda: 1)
    said = r"NotDeclared: .*'modle' is not declared; did you mean 'model'\? \(known: model\)"
    with pytest.raises(envq.JobFailed, match=said):
        run(lambda: env.modle)


def test_an_error_in_a_class_instead_of_an_instance_burns_no_name(client: Client) -> None:
    for wrong in (42, "not a path", None):
        with pytest.raises(TypeError):
            env.x = envq.EnvironmentVariable(wrong)  # type: ignore[arg-type]
    assert client.connection.keys("*") == []
