"""Batches of all kinds of jobs while executors are killed and stopped and connections are cut, at random moments."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.acting import Act, assert_nothing_is_left
from support.proxy import CUTS, CuttingProxy
from support.servers import Server
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq.driver.client import Client, driver_scope, swap_default
from envq.store.scripts import digest

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

Worker = Callable[..., WorkerProcess]
JOBS = 2500
ROUNDS = 5
SCRIPTS = [digest(name).encode() for name in ("claim", "finish", "giveback", "release", "beat", "standing")]
KINDS = ("tiny", "spin", "mutate", "raise", "large")
WEIGHTS = (60, 20, 15, 4, 1)
LATEST_S = 240


@pytest.fixture
def deployment(own_server: Callable[..., Server]) -> Iterator[tuple[Server, CuttingProxy, Client]]:
    """A server, a proxy through which the workers reach it, and this process as a driver without it."""
    server = own_server()
    proxy = CuttingProxy(server.port)
    driver_scope.close()
    before = swap_default(None)
    yield server, proxy, envq.connect(server.url())
    driver_scope.close()
    swap_default(before)
    proxy.close()


@pytest.fixture
def act(tmp_path: Path) -> Act:
    notes = tmp_path / "notes"
    notes.touch()

    def act(kind: str, number: int) -> Any:
        import time

        with open(notes, "ab", buffering=0) as file:  # noqa: PTH123 - as fast as can be
            file.write(b"%d\n" % number)
        if kind == "spin":
            until = time.monotonic() + 0.001 * (number % 30)
            while time.monotonic() < until:
                pass
        elif kind == "mutate":
            value = envq.env.value
            clean = value == {"items": []}
            value["items"].append(number)
            return number if clean else "dirty"
        elif kind == "raise":
            raise ValueError(number)
        elif kind == "large":
            return b"x" * 700_000
        return number

    return act


class Trouble(threading.Thread):
    """Does harm until it is told to stop, about five times a second; which harm, the seed decides."""

    def __init__(self, seed: int, workers: list[WorkerProcess], proxy: CuttingProxy) -> None:
        super().__init__(daemon=True)
        self.counted: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._workers = workers
        self._proxy = proxy
        self._enough = threading.Event()

    def run(self) -> None:
        while not self._enough.wait(self._random.uniform(0.05, 0.3)):
            harm = self._random.choice(("kill", "kill", "pause", "pause and kill", "cut", "cut"))
            self.counted[harm] += 1
            if harm == "cut":
                self._proxy.cut(self._random.choice(SCRIPTS), self._random.choice(CUTS), times=1)
                continue
            pids = [pid for worker in self._workers for pid in worker.descendants()]
            if not pids:
                continue
            pid = self._random.choice(pids)
            if harm != "kill":
                send(pid, signal.SIGSTOP)
                self._enough.wait(self._random.uniform(0.0, 0.3))
            send(pid, signal.SIGCONT if harm == "pause" else signal.SIGKILL)

    def end(self) -> None:
        self._enough.set()
        self.join()
        self._proxy.cut(b"", "", times=0)


def send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def declare() -> None:
    def make() -> dict[str, list[int]]:
        return {"items": []}

    def put_back(value: dict[str, list[int]]) -> dict[str, list[int]]:
        value["items"].clear()
        return value

    envq.env.value = envq.EnvironmentVariable(make, put_back, driver="never")


def enqueue_all(act: Act, seed: int, jobs: int) -> tuple[list[str], list[Any], set[int]]:
    """Kind and job by number, and the numbers of those that must not run twice; some gain dependents later on."""
    chance = random.Random(seed)
    kinds, made, once = list[str](), list[Any](), set[int]()
    while len(made) < jobs:
        fragile = chance.random() < 0.3
        chunk = chance.choices(KINDS, WEIGHTS, k=3 if fragile else chance.randint(50, 150))
        calls = [(kind, len(made) + at) for at, kind in enumerate(chunk)]
        task = envq.task(act).options(on_crash="fail" if fragile else "requeue", result_ttl=600)
        once |= {number for _, number in calls} if fragile else set()
        made += task.starmap(calls)
        kinds += chunk
    for parent in chance.sample(made, jobs // 50):
        made.append(
            envq.task(act).options(depends_on=envq.Dependency(parent, allow_failure=True)).enqueue("tiny", len(made))
        )
        kinds.append("tiny")
    return kinds, made, once


def expected(kind: str, number: int) -> Any:
    return b"x" * 700_000 if kind == "large" else number


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_whatever_is_killed_or_cut_each_job_ends_as_it_should(
    deployment: tuple[Server, CuttingProxy, Client],
    worker: Worker,
    act: Act,
    tmp_path: Path,
    scaled: Callable[[int], int],
    round_: int,
) -> None:
    if round_ >= scaled(ROUNDS):
        pytest.skip("only with a larger --scale")
    _, proxy, client = deployment
    declare()
    url = f"redis://127.0.0.1:{proxy.port}/0"
    workers = [worker("-w", "2", "--no-scheduler", "--log-level", "WARNING", executors=2, url=url) for _ in range(2)]
    trouble = Trouble(round_, workers, proxy)
    kinds, jobs, once = enqueue_all(act, round_, JOBS)
    trouble.start()
    try:
        results = envq.get(jobs, timeout=LATEST_S, return_exceptions=True)
    finally:
        trouble.end()
    print(f"seed {round_}: {dict(trouble.counted)}")
    ran = Counter(map(int, (tmp_path / "notes").read_text().split()))
    for number, (kind, result) in enumerate(zip(kinds, results, strict=True)):
        what = f"{kind} job {number} ran {ran[number]} times: {result!r:.200}"
        if isinstance(result, envq.WorkerLost):
            assert ran[number] <= 1 if number in once else ran[number] >= 1, what
        elif kind == "raise":
            assert "ValueError" in str(result), what
        else:
            assert result == expected(kind, number), what
        if number in once:
            assert ran[number] <= 1, what
        if not isinstance(result, envq.WorkerLost):
            assert ran[number] >= 1, what
    assert all(len(job.results()) == 1 for job in jobs)
    assert_nothing_is_left(client)


def test_a_whole_worker_that_is_killed_loses_nothing_of_its_batches(
    deployment: tuple[Server, CuttingProxy, Client], worker: Worker, act: Act, tmp_path: Path
) -> None:
    server, _, client = deployment
    declare()
    first = worker("-w", "2", "--no-scheduler", executors=2, url=server.url())
    envq.get(envq.task(act).starmap([("tiny", 0)] * 800), timeout=60)
    jobs = envq.task(act).starmap([("spin", 29 + 30 * number) for number in range(300)])
    fragile = envq.task(act).options(on_crash="fail").starmap([("spin", 28 + 30 * number) for number in range(100)])
    eventually(lambda: (tmp_path / "notes").read_text().count("\n") > 830)
    first.kill()
    worker("-w", "2", "--no-scheduler", executors=2, url=server.url())
    assert envq.get(jobs, timeout=120) == [29 + 30 * number for number in range(300)]
    ran = Counter(map(int, (tmp_path / "notes").read_text().split()))
    results = envq.get(fragile, timeout=60, return_exceptions=True)
    for number, result in enumerate(results):
        assert ran[28 + 30 * number] <= 1
        assert isinstance(result, envq.WorkerLost) or result == 28 + 30 * number
    assert_nothing_is_left(client)
