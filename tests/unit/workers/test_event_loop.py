"""The event loop: whose a task is decides whether it outlives the job."""

from __future__ import annotations

import asyncio
import contextlib
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
