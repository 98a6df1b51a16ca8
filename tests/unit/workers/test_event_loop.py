"""The event loop: whose a task is decides whether it outlives the job."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import queue
from collections.abc import Iterator

import pytest

from envq.workers.execution.event_loop import EventLoop


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    made = EventLoop()
    yield made
    made.close()


def test_tasks_of_a_job_are_cancelled_and_those_of_a_variable_go_on(loop: EventLoop) -> None:
    async def start() -> asyncio.Task[None]:
        return asyncio.create_task(asyncio.sleep(60))

    kept = loop.run_for_variable(start())
    left = loop.run(start())
    assert loop.cancel_leftovers() == 1
    assert left.cancelled()
    assert not kept.done()
    assert not loop.holds_leftovers


def test_what_a_job_left_does_not_become_a_variables_when_that_is_rebuilt(loop: EventLoop) -> None:
    ended = False

    async def insist() -> None:
        while not ended:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    async def leave() -> asyncio.Task[None]:
        return asyncio.create_task(insist())

    async def rebuild() -> None:
        await asyncio.sleep(0)

    left = loop.run(leave())
    loop.run_for_variable(rebuild())
    assert loop.holds_leftovers
    ended = True
    loop.run(asyncio.wait_for(left, 5))  # type: ignore[arg-type]
    assert not loop.holds_leftovers


def test_timers_of_a_job_are_cancelled_and_those_of_a_variable_or_a_library_go_on(loop: EventLoop) -> None:
    called: list[str] = []
    names = iter(["built", "left"])

    async def arm() -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(60, lambda name: called.append(name), next(names))

    async def arm_methods() -> list[asyncio.TimerHandle]:
        running = asyncio.get_running_loop()
        future = running.create_future()
        return [
            running.call_later(60, called.append, "method"),
            running.call_at(running.time() + 60, functools.partial(called.append, "partial")),
            running.call_later(60, future.cancel),
            running.call_later(60, queue.Queue().put, "Python's"),
            running.call_later(60, asyncio.Event().set),
            running.call_later(60, pytest.approx, "installed"),
        ]

    kept, left = loop.run_for_variable(arm()), loop.run(arm())
    method, partial, future, python, event, installed = loop.run(arm_methods())
    assert loop.cancel_leftovers() == 4
    assert [each.cancelled() for each in (left, method, partial, python)] == [True] * 4
    assert [each.cancelled() for each in (kept, future, event, installed)] == [False] * 4
    assert loop.cancel_leftovers() == 0


def test_what_is_to_be_called_soon_is_called_before_the_job_is_over(loop: EventLoop) -> None:
    called: list[str] = []

    async def leave() -> None:
        running = asyncio.get_running_loop()
        running.call_soon(running.call_soon, running.call_soon, called.append, "soon")

    loop.run(leave())
    loop.cancel_leftovers()
    assert called == ["soon"]
