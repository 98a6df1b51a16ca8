"""Checked by pyright, never run: what a type checker sees of tasks, jobs and results."""

# An ignore below that ignores nothing is an error: something wrong would be let through.
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

import envq


@envq.task
def add(x: int, y: int = 1) -> float:
    return x + y


@envq.task(queue="high", timeout=0.5, result_ttl=0, retry=envq.Retry(3), on_crash="fail")
def shout(text: str, *, twice: bool = False) -> str:
    return text.upper() * (2 if twice else 1)


@envq.task
async def fetch(url: str) -> bytes:
    return url.encode()


@envq.task(timeout=None)
async def ping() -> None: ...


def tasks() -> None:
    assert_type(add(1), float)
    assert_type(add.enqueue(1, y=2), envq.Job[float])
    assert_type(add.enqueue_in(timedelta(seconds=1), 1), envq.Job[float])
    assert_type(add.enqueue_in(0.5, 1, 2), envq.Job[float])
    assert_type(add.map([1, 2]), list[envq.Job[float]])
    assert_type(add.options(timeout=0.5, meta={"a": 1}).enqueue(1), envq.Job[float])
    assert_type(shout.enqueue("a", twice=True), envq.Job[str])


async def async_tasks() -> None:
    assert_type(await fetch("url"), bytes)
    assert_type(fetch.enqueue("url"), envq.Job[bytes])
    assert_type(ping.options(queue="low").enqueue(), envq.Job[None])


def refused() -> None:
    add.enqueue("1")  # pyright: ignore[reportArgumentType]
    add.enqueue()  # pyright: ignore[reportCallIssue]
    add.enqueue_in(1, "1")  # pyright: ignore[reportArgumentType]
    shout.enqueue("a", thrice=True)  # pyright: ignore[reportCallIssue]
    add.options(jobid="x")  # pyright: ignore[reportCallIssue]
    add.options(on_crash="explode")  # pyright: ignore[reportArgumentType]


def results(job: envq.Job[int], jobs: list[envq.Job[str]]) -> None:
    assert_type(envq.get(job), int)
    assert_type(envq.get(job, 10), int)
    assert_type(envq.get(job, timeout=1.5, return_exceptions=False), int)
    assert_type(envq.get(job, return_exceptions=True), int | Exception)
    assert_type(envq.get(jobs), list[str])
    assert_type(envq.get(jobs, return_exceptions=True), list[str | Exception])
    assert_type(envq.get("id"), Any)
    assert_type(envq.get(["id", job]), list[Any])
    assert_type(job.time_limit, float | None)


def queues() -> None:
    queue = envq.Queue("mail", default_timeout=0.5)
    assert_type(queue.enqueue(print, "text", job_timeout=1.5), envq.Job[Any])


def variables() -> None:
    envq.env.model = envq.EnvironmentVariable(list, lambda value: value)
    assert_type(envq.env.model, Any)
    del envq.env.model
