"""Processes that a job forks: they never become a second executor, and end when they are told to."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from support.jobs import run

import envq
from envq.driver.client import Client


@pytest.mark.parametrize("way", ["return", "sys.exit", "raise"])
def test_a_forked_copy_of_a_job_ends_where_the_job_ends(way: str, driver: Client) -> None:
    def fork() -> int:
        import os
        import sys

        pid = os.fork()
        if pid == 0 and way == "sys.exit":
            sys.exit(3)
        if pid == 0 and way == "raise":
            raise ValueError("in the copy")
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if pid else -1

    assert run(fork) == {"return": 0, "sys.exit": 3, "raise": 1}[way]

    def count(number: int) -> None:
        from rq import get_current_job

        job: Any = get_current_job()
        job.connection.rpush(f"ran:{way}", number)

    envq.get(envq.task(count).map(range(100)), timeout=30)
    ran = Counter(driver.connection.lrange(f"ran:{way}", 0, -1))
    assert set(ran.values()) == {1}, "a second executor runs the same claims"


@pytest.mark.usefixtures("driver")
def test_a_process_of_a_job_ends_when_it_is_told_to() -> None:
    def terminate() -> int | None:
        import multiprocessing
        import signal

        child = multiprocessing.get_context("fork").Process(target=signal.pause)
        child.start()
        child.terminate()
        child.join(10)
        return child.exitcode

    assert run(terminate) == -15


@pytest.mark.usefixtures("driver")
def test_a_program_that_a_job_starts_can_be_interrupted() -> None:
    def interrupt() -> int:
        import signal
        import subprocess

        program = subprocess.Popen(["sleep", "20"])
        program.send_signal(signal.SIGINT)
        return program.wait(10)

    assert run(interrupt) == -2


def test_a_copy_that_reads_a_variable_leaves_the_executors_records_alone(driver: Client) -> None:
    envq.env.late = envq.EnvironmentVariable(lambda: [0], lambda value: value, build="lazy")

    def read_in_a_copy() -> bool:
        import os

        pid = os.fork()
        if pid == 0:
            os._exit(len(envq.env.late))
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1

    assert run(read_in_a_copy)
    assert run(lambda: envq.env.late) == [0]
    assert driver.connection.zcard("rq:wip:default") == 0
