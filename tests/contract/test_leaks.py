"""A long life costs nothing: descriptors, threads, memory and keys stay where they were after a while."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq.driver.client import Client
from envq.environment import env
from envq.store import keys as rq

pytestmark = pytest.mark.timeout(240)

StartWorker = Callable[..., WorkerProcess]
JOBS = 10_000
WARM_UP = 1_000
A_ROUND = 500
WAIT_S = 60.0
# A Python object that stays for each job is a block a job, a value that the C library keeps is 96 bytes.
# Something that is imported late, once, is up to 0.7 blocks a job.
BLOCKS_A_JOB = 0.95
BYTES_A_JOB = 24


class Open(NamedTuple):
    """What a process has open."""

    descriptors: int
    threads: int


class Memory(NamedTuple):
    """What a process holds: Python's small blocks, and bytes from the C library (0 where it does not tell)."""

    blocks: int
    heap: int


def opened(pid: int) -> Open:
    process = Path("/proc") / str(pid)
    return Open(len(list((process / "fd").iterdir())), len(list((process / "task").iterdir())))


def measuring() -> Callable[[], tuple[int, int]]:
    """What a process holds, garbage collected, as a function that travels by value; the fields of Memory."""

    def measure() -> tuple[int, int]:
        import ctypes
        import gc
        import sys

        class Mallinfo(ctypes.Structure):
            _fields_ = [(f"field {number}", ctypes.c_size_t) for number in range(10)]

        gc.collect()
        libc = ctypes.CDLL(None)
        if not hasattr(libc, "mallinfo2"):
            return sys.getallocatedblocks(), 0
        libc.mallinfo2.restype = Mallinfo
        info = libc.mallinfo2()
        return sys.getallocatedblocks(), getattr(info, "field 7") + getattr(info, "field 4")  # in use, mapped

    return measure


def jobs_of_all_kinds() -> list[Any]:
    """Most of them tiny."""

    def nothing() -> None:
        pass

    def read() -> int:
        env.rebuilt.append(1)
        return len(env.kept) + len(env.rebuilt)

    async def gather() -> int:
        import asyncio

        return len(await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0)))

    def fail() -> None:
        raise ValueError("on purpose")

    def again() -> Any:
        import rq

        job = rq.get_current_job()
        return rq.Retry(max=1) if job and not job.number_of_retries else "again"

    def linger() -> None:
        import signal

        while True:
            signal.pause()

    first = envq.task(nothing).enqueue()
    return [
        first,
        *envq.task(nothing).starmap([()] * (A_ROUND * 6 // 10)),
        *envq.task(read).starmap([()] * (A_ROUND // 5)),
        *envq.task(gather).starmap([()] * (A_ROUND // 10)),
        *envq.task(fail).starmap([()] * (A_ROUND // 25)),
        *envq.task(again).starmap([()] * (A_ROUND // 50)),
        *envq.task(nothing).options(depends_on=first).starmap([()] * (A_ROUND // 50)),
        *envq.task(nothing).options(on_success=envq.Callback("builtins.slice")).starmap([()] * (A_ROUND // 50)),
        *envq.task(linger).options(timeout=0.01).starmap([()] * 2),
    ]


def test_an_executor_and_its_supervisor_hold_the_same_after_10000_jobs(client: Client, worker: StartWorker) -> None:
    one = worker("--quiet")
    env.kept = envq.EnvironmentVariable(dict, lambda value: value)
    env.rebuilt = envq.EnvironmentVariable(list)
    envq.wait_ready("rebuilt", timeout=20)
    [view] = client.executors.all()
    task = envq.task(measuring())

    def run_until(wanted: int) -> tuple[Open, Open, Memory]:
        nonlocal done
        while done < wanted:
            jobs = jobs_of_all_kinds()
            outcomes = envq.get(jobs, timeout=WAIT_S, return_exceptions=True)
            failed = [str(outcome) for outcome in outcomes if isinstance(outcome, envq.JobFailed)]
            assert len(failed) == A_ROUND // 25 + 2, failed[-3:]
            done += len(jobs)
        return opened(view.info.pid), opened(one.pid), Memory(*envq.get(task.enqueue(), timeout=WAIT_S))

    done = 0
    executor, supervisor, memory = run_until(WARM_UP)
    began = done
    executor_later, supervisor_later, memory_later = run_until(JOBS)
    assert executor_later == executor
    assert supervisor_later == supervisor
    blocks, heap = [(later - before) / (done - began) for later, before in zip(memory_later, memory, strict=True)]
    print(f"a job: {blocks:.3f} blocks, {heap:.1f} bytes")
    assert blocks < BLOCKS_A_JOB
    assert heap < BYTES_A_JOB
    assert [each.info.pid for each in client.executors.all()] == [view.info.pid], "one executor has run them all"


DRIVER = """
    import os
    import sys
    import envq

    MEASURING
    measure = measuring()

    def double(number):
        return 2 * number

    def look():
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), *measure()

    def run(jobs):
        task = envq.task(double)
        for number in range(jobs):
            assert envq.get(task.enqueue(number), timeout=60) == 2 * number

    run(1000)
    before = look()
    run(9000)
    print(*(later - earlier for later, earlier in zip(look(), before)))
"""


def test_a_driver_holds_the_same_after_10000_jobs(worker: StartWorker, run_script: Callable[..., Any]) -> None:
    worker("--quiet")
    script = textwrap.dedent(DRIVER).replace(
        "MEASURING", "from collections.abc import Callable\n" + inspect.getsource(measuring)
    )
    descriptors, threads, blocks, heap = map(int, run_script(script, timeout=200).stdout.split())
    print(f"a job: {blocks / 9000:.3f} blocks, {heap / 9000:.1f} bytes")
    assert (descriptors, threads) == (0, 0)
    assert blocks / 9000 < BLOCKS_A_JOB
    assert heap / 9000 < BYTES_A_JOB


def test_200_versions_leave_one_value_and_few_blobs_that_expire(client: Client, worker: StartWorker) -> None:
    one = worker("--quiet")
    env.versioned = envq.EnvironmentVariable(lambda: -1, lambda value: value)
    envq.wait_ready("versioned", timeout=20)
    assert envq.get(envq.task(lambda: env.versioned).enqueue(), timeout=WAIT_S) == -1
    [view] = client.executors.all()
    before, keys_before = opened(view.info.pid), others(client)
    for number in range(200):
        env.versioned = envq.EnvironmentVariable(lambda number=number: number, lambda value: value)
    envq.wait_ready("versioned", timeout=60)
    assert envq.get(envq.task(lambda: env.versioned).enqueue(), timeout=WAIT_S) == 199
    assert opened(view.info.pid) == before
    assert opened(one.pid).threads == 1
    assert others(client) <= keys_before
    code = [key.decode() for key in client.connection.scan_iter(client.keys.code("*"), count=1000)]
    lasting = [key for key in code if client.connection.ttl(key) == -1]
    assert len(lasting) <= 1, "code of versions that were replaced expires"
    declaration = client.declarations.snapshot().declarations["versioned"]
    assert declaration.version == 201
    assert len(declaration.history) < 50


def others(client: Client) -> set[bytes]:
    """Keys that are neither code nor jobs."""
    return {key for key in client.connection.scan_iter(count=1000) if b":code:" not in key and not of_jobs(key)}


def of_jobs(key: bytes) -> bool:
    return key.startswith((rq.job("").encode(), rq.results("").encode()))


def test_200_executors_later_the_supervisor_and_redis_hold_the_same(client: Client, worker: StartWorker) -> None:
    one = worker("--quiet", "--max-jobs-per-child", "1")
    env.kept = envq.EnvironmentVariable(dict, lambda value: value)

    def pid() -> int:
        import os

        return os.getpid()

    def run_until(wanted: int) -> None:
        while len(pids) < wanted:
            pids.update(envq.get(envq.task(pid).starmap([()] * 10), timeout=WAIT_S))

    def settled() -> tuple[Open, set[bytes]]:
        names = one.executors()
        assert len(names) == len(client.executors.all()) == client.connection.zcard(client.keys.executors) == 1
        records = [
            key for key in client.connection.scan_iter("rq:worker:*", count=1000) if names[0].encode() not in key
        ]
        # RQ shows a worker that has gone for a minute.
        assert all(client.connection.ttl(key) <= 60 for key in records)
        keys = {key.replace(names[0].encode(), b"*") for key in others(client) - {*records}}
        assert {b"rq:workers", client.keys.executors.encode()} <= keys, "it was there all the time"
        return opened(one.pid), keys

    pids: set[int] = set()
    run_until(20)
    before = eventually(settled)
    run_until(200)

    def as_before() -> None:
        open_now, keys_now = settled()
        assert open_now.descriptors <= before[0].descriptors  # then one may just have been about to be replaced
        assert open_now.threads == before[0].threads
        assert keys_now <= before[1]

    eventually(as_before)


def test_1000_failed_jobs_are_gone_after_their_failure_ttl(client: Client, worker: StartWorker) -> None:
    def fail() -> None:
        raise ValueError("on purpose")

    worker("--quiet")
    jobs = envq.task(fail).options(failure_ttl=60).starmap([()] * 1000)
    envq.get(jobs, timeout=WAIT_S, return_exceptions=True)
    keys = [key for key in client.connection.scan_iter(count=1000) if of_jobs(key)]
    assert len(keys) == 2 * len(jobs)
    assert all(0 < client.connection.ttl(key) <= 60 for key in keys)
    assert client.connection.zcard("rq:failed:default") == len(jobs)
    newest = client.connection.zrevrange("rq:failed:default", 0, 0, withscores=True)[0][1]
    assert newest <= client.connection.time()[0] + 60, "RQ's maintenance takes it out of the registry then"
