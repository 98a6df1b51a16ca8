"""C6: whatever a job did and however it ended, the next one finds its variables reset."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from rq.command import send_stop_job_command
from support.deployment import Deployment
from support.diary import Diary
from support.gate import Gate
from support.jobs import enqueue, run, run_all
from support.waiting import eventually

import envq
from envq.driver.client import Client
from envq.environment import env

pytestmark = pytest.mark.usefixtures("deployment")
Declare = Callable[..., None]


@pytest.fixture
def numbers(declare: Declare) -> None:
    """A list that its reinitializer empties."""

    def empty(values: list[str]) -> list[str]:
        values.clear()
        return values

    declare("numbers", list, empty)


def read() -> Callable[[], list[str]]:
    def read() -> list[str]:
        return list(env.numbers)

    return read


def succeed() -> None:
    pass


def fail() -> None:
    raise ValueError("on purpose")


def leave() -> None:
    raise SystemExit(3)


def hang() -> None:
    while True:
        signal.pause()


def return_a_lock() -> object:
    import threading

    return threading.Lock()


@pytest.mark.parametrize("ending", [succeed, fail, leave, hang, return_a_lock], ids=lambda ending: ending.__name__)
def test_after_a_job_that_ended_in_any_way(numbers: None, ending: Callable[[], object]) -> None:
    names = {"succeed": "", "fail": "on purpose", "leave": "SystemExit", "hang": "timeout", "return_a_lock": "pickle"}
    expected, code = names[ending.__name__], ending.__code__

    def job() -> object:
        import signal
        import types

        env.numbers.append("dirty")
        return types.FunctionType(code, {"signal": signal, "__builtins__": __builtins__})()

    ended = envq.get(enqueue(job, timeout=0.4), timeout=30, return_exceptions=True)
    assert expected in str(ended)
    assert isinstance(ended, envq.JobFailed) == (ending is not succeed)
    assert run(read()) == []


def test_between_the_tries_of_one_job(numbers: None, diary: Diary) -> None:
    write = diary.write

    def job() -> None:
        write(str(env.numbers))
        env.numbers.append("dirty")
        raise ValueError("on purpose")

    with pytest.raises(envq.JobFailed, match="on purpose"):
        run(job, retry=2)
    assert diary.entries == ["[]"] * 3


def test_after_a_job_that_asked_to_be_run_again(numbers: None, diary: Diary) -> None:
    write = diary.write

    def job() -> object:
        write(str(env.numbers))
        env.numbers.append("dirty")
        return envq.Retry(max=1)

    enqueue(job)
    diary.wait_for("[]", "[]")


def test_after_a_job_that_was_stopped(client: Client, numbers: None, diary: Diary) -> None:
    write = diary.write

    def job() -> None:
        env.numbers.append("dirty")
        write("running")
        while True:
            signal.pause()

    stopped = enqueue(job)
    diary.wait_for("running")
    send_stop_job_command(client.connection, stopped.id)
    with pytest.raises(envq.JobStopped):
        envq.get(stopped, timeout=30)
    assert run(read()) == []


def test_in_a_burst_of_tiny_jobs(numbers: None) -> None:
    def append() -> int:
        env.numbers.append("dirty")
        return len(env.numbers)

    assert run_all(append, 200) == [1] * 200


def test_a_task_left_on_the_event_loop_is_cancelled_first(numbers: None, diary: Diary) -> None:
    write = diary.write

    async def leave_a_task() -> None:
        import asyncio

        numbers = env.numbers

        async def mutate_later() -> None:
            try:
                await asyncio.sleep(0.05)
                numbers.append("late")
            except asyncio.CancelledError:
                write("cancelled")
                raise

        leave_a_task.task = asyncio.ensure_future(mutate_later())  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    async def read_after_a_while() -> list[str]:
        import asyncio

        numbers = env.numbers
        await asyncio.sleep(0.15)
        return list(numbers)

    run(leave_a_task)
    assert run(read_after_a_while) == []
    assert diary.entries == ["cancelled"]


def test_a_callback_left_on_the_event_loop_is_not_called_in_a_later_job(client: Client, declare: Declare) -> None:
    declare("called", list, lambda values: values.clear() or values)

    async def leave() -> None:
        import asyncio

        called = env.called
        asyncio.get_running_loop().call_later(0.05, called.append, "late")
        asyncio.get_running_loop().call_later(0.05, lambda: env.called.append("later"))
        asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, called.append, "soon")

    async def look() -> list[str]:
        import asyncio

        before = list(env.called)
        await asyncio.sleep(0.2)
        return before + list(env.called)

    run(leave)
    assert run(look) == []


@pytest.mark.parametrize("how", ["thread", "asyncio.to_thread"])
def test_a_thread_left_behind_forces_a_rebuild(
    client: Client, declare: Declare, diary: Diary, gate: Gate, how: str
) -> None:
    write, wait = diary.write, gate.wait

    def make() -> list[str]:
        write("built")
        return []

    declare("held", make, lambda values: values)

    def leave_a_thread() -> None:
        import threading

        held = env.held

        def mutate_later() -> None:
            wait()
            held.append("late")
            write("mutated")

        threading.Thread(target=mutate_later, daemon=True).start()

    async def leave_a_call() -> None:
        import asyncio

        held = env.held

        def mutate_later() -> None:
            wait()
            held.append("late")
            write("mutated")

        leave_a_call.task = asyncio.ensure_future(asyncio.to_thread(mutate_later))  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    run(leave_a_thread if how == "thread" else leave_a_call)
    diary.wait_for("built", "built")
    gate.open()
    diary.wait_for("built", "built", "mutated")
    assert run(lambda: env.held) == []


@pytest.mark.parametrize("how", ["thread", "asyncio.to_thread"])
def test_a_thread_left_behind_gets_no_value_of_a_later_job(
    client: Client, declare: Declare, diary: Diary, gate: Gate, how: str
) -> None:
    write, wait, later = diary.write, gate.wait, Gate(client.settings.url)
    wait_later = later.wait

    declare("touched", list, lambda values: values)

    def touch_later() -> None:
        wait()
        try:
            env.touched.append("late")
        except Exception as error:  # noqa: BLE001 - whatever it is
            write(f"{type(error).__name__}: {error}")
        else:
            write("touched")

    def leave_a_thread() -> None:
        import threading

        threading.Thread(target=touch_later, daemon=True).start()

    async def leave_a_call() -> None:
        import asyncio

        leave_a_call.task = asyncio.ensure_future(asyncio.to_thread(touch_later))  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    def use_meanwhile() -> list[str]:
        import threading

        env.touched.append("mine")
        reader = threading.Thread(target=lambda: env.touched.append("my thread's"))
        reader.start()
        reader.join()
        write("reads")
        wait_later()
        return list(env.touched)

    run(leave_a_thread if how == "thread" else leave_a_call)
    used = enqueue(use_meanwhile)
    diary.wait_for("reads")
    gate.open()
    eventually(lambda: len(diary.entries) == 2)
    assert "EnvironmentVariableError" in diary.entries[1]
    assert "whose job has ended" in diary.entries[1]
    later.open()
    assert envq.get(used, timeout=30) == ["mine", "my thread's"]


def test_the_caller_does_not_wait_for_the_reset_but_the_next_job_does(
    client: Client, declare: Declare, diary: Diary, gate: Gate
) -> None:
    write, wait = diary.write, gate.wait

    def reset(value: object) -> object:
        write("resetting")
        wait()
        write("reset")
        return value

    declare("slow", object, reset)
    run(lambda: env.slow is None)
    next_job = enqueue(lambda: write("next"))
    diary.wait_for("resetting")
    gate.open()
    envq.get(next_job, timeout=30)
    diary.wait_for("resetting", "reset", "next")


def test_a_process_that_died_in_a_job_leaves_nothing_behind(client: Client, numbers: None) -> None:
    url = client.settings.url

    def die_once() -> list[str]:
        import os
        import signal

        import redis

        found = list(env.numbers)
        env.numbers.append("dirty")
        with redis.Redis.from_url(url) as connection:
            if connection.incr("test:runs") == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        return found

    assert run(die_once) == []
    assert client.connection.get("test:runs") == b"2"
    assert run(read()) == []


def test_a_task_that_cannot_be_cancelled_touches_no_value_of_a_later_job(
    client: Client, deployment: Deployment, declare: Callable[..., None]
) -> None:
    declare("noted", list[int], lambda value: value.clear() or value)

    async def leave() -> None:
        import asyncio
        import contextlib

        async def insist() -> None:
            while True:
                env.noted.append(1)
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.01)

        leave.task = asyncio.create_task(insist())  # type: ignore[attr-defined]
        await asyncio.sleep(0.05)

    async def look() -> list[int]:
        import asyncio

        await asyncio.sleep(0.1)
        return list(env.noted)

    run(leave)
    assert run(look) == []
    assert "a fresh executor takes over" in deployment.worker.output


def test_a_task_that_blocks_when_it_is_cancelled_holds_nobody_up(client: Client, deployment: Deployment) -> None:
    async def leave() -> None:
        import asyncio
        import threading

        async def block() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                threading.Event().wait(60)

        leave.task = asyncio.create_task(block())  # type: ignore[attr-defined]
        await asyncio.sleep(0.05)

    run(leave)
    assert run(lambda: 1) == 1
