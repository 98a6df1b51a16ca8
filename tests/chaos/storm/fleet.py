"""The workers of a storm: two `envq worker` commands of two executors each, replaced when they are gone."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import redis
from chaos.storm.plan import QUEUES
from chaos.storm.work import EFFECTS
from support.processes import pids_of_family
from support.workers import WorkerProcess

WORKERS: Final = 2
EXECUTORS: Final = 2
LEASE_S: Final = 8.0  # in the long run
SERVER_WITHIN_S: Final = 30.0
TESTS: Final = Path(__file__).parents[2]
STOP_WITHIN_S: Final = 60.0


class Fleet:
    """Workers in the same places; all that ever ran are remembered until the end."""

    def __init__(self, url: str, directory: Path, effects: Path, lease_s: float) -> None:
        self.lease_s = lease_s
        self._url = url
        self._directory = directory
        self._effects = effects
        self._numbers = itertools.count()
        self.all: list[WorkerProcess] = []
        self.places: list[WorkerProcess] = []
        self.faults: list[str] = []
        self._leaving: list[WorkerProcess] = []

    def start(self) -> None:
        """Fill all places and wait for them."""
        self.places = [self._launch() for _ in range(WORKERS)]

    def wait_ready(self) -> None:
        for worker in self.places:
            worker.wait_ready(EXECUTORS, timeout=60.0)

    def tend(self) -> None:
        """Replace workers that are gone."""
        for at, worker in enumerate(self.places):
            if not worker.running:
                self.faults.append(f"{worker} ended by itself with code {worker.wait()}")
                self.places[at] = self._launch()

    def executors(self) -> list[int]:
        """Pids of the executors, the young ones among them, and of the schedulers."""
        return [pid for worker in self.places for pid in worker.descendants()]

    def kill_supervisor(self, at: int) -> None:
        """SIGKILL; its executors have to end by themselves."""
        send(self.places[at].pid, signal.SIGKILL)
        self.places[at].wait()
        self.places[at] = self._launch()

    def lose(self, at: int) -> None:
        """All processes of a worker at once, as a host that lost its power."""
        self.places[at].kill()
        self.places[at] = self._launch()

    def roll(self, at: int) -> None:
        """A rolling restart: a new one starts, the old one is asked to stop."""
        old, self.places[at] = self.places[at], self._launch()
        old.send(signal.SIGTERM)
        self._leaving.append(old)

    def freeze(self, at: int) -> list[int]:
        """Stop a worker with all its processes, as a machine that falls asleep; returns whom to wake up."""
        worker = self.places[at]
        frozen = [worker.pid, *worker.descendants()]
        for pid in frozen:
            send(pid, signal.SIGSTOP)
        return frozen

    def stop(self) -> None:
        """Stop all, warm; what does not end in good order is a fault."""
        for worker in self.places:
            worker.send(signal.SIGTERM)
        for worker in [*self._leaving, *self.places]:
            try:
                code = worker.wait(STOP_WITHIN_S)
            except AssertionError:
                self.faults.append(f"{worker} did not stop within {STOP_WITHIN_S:g} s of SIGTERM")
                continue
            # One that had not come so far as to listen to signals had nothing to put in order either.
            if code != 0 and (code != -signal.SIGTERM or worker.output):
                self.faults.append(f"{worker} ended with code {code} after SIGTERM")

    def strangers(self, executors: Iterable[str]) -> list[str]:
        """Those of the named executors whose worker is gone: it was killed, and another has to notice."""
        living = {str(worker.pid) for worker in self.places}
        return [name for name in executors if name.split(".")[-3] not in living]

    def orphans(self) -> list[int]:
        """What is left of all that ever ran."""
        return [pid for worker in self.all for pid in pids_of_family(worker.family)]

    def end(self) -> None:
        """Kill whatever is left."""
        for worker in self.all:
            worker.kill()

    def pids_by_redis(self, client: redis.Redis) -> set[int]:
        """Pids of registered executors."""
        keys = client.smembers("rq:workers")
        return {int(client.hget(key, "pid") or 0) for key in keys}

    def _launch(self) -> WorkerProcess:
        directory = self._directory / f"worker-{next(self._numbers)}"
        limits = ("--lease", str(self.lease_s), "--wait-for-server", str(SERVER_WITHIN_S))
        arguments = (*QUEUES, "-w", str(EXECUTORS), "-P", str(TESTS), *limits)
        env = {EFFECTS: str(self._effects)}
        self.all.append(WorkerProcess(*arguments, url=self._url, directory=directory, env=env))
        return self.all[-1]


def send(pid: int, number: signal.Signals) -> None:
    """A signal to a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
