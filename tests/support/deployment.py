"""A server, a worker and a driver that all tests of a module share: starting them costs a second."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import redis

from envq.driver import client as client_module
from envq.driver.client import Client, connect
from support.processes import Process
from support.servers import Server
from support.workers import WorkerProcess


class Deployment:
    """A server of its own, so that no other test empties its database, and the workers on it."""

    def __init__(
        self, binary: Path, directory: Path, options: tuple[str, ...] = (), env: Mapping[str, str] | None = None
    ) -> None:
        self.server = Server(binary).start()
        self.redis = self.server.client()
        self._directory = directory
        self._options, self._env = options, dict(env or {})  # of every worker
        self._numbers = itertools.count()
        self._workers: list[WorkerProcess] = []
        self._before: Client | None = None

    @property
    def url(self) -> str:
        return self.server.url()

    @property
    def worker(self) -> WorkerProcess:
        """The first worker that was started."""
        return self._workers[0]

    def start_worker(self, *arguments: str, executors: int = 1, env: Mapping[str, str] | None = None) -> WorkerProcess:
        """Start a worker that lives as long as the module's tests, and wait until it is ready."""
        directory = self._directory / f"worker-{next(self._numbers)}"
        env = self._env | dict(env or {})
        self._workers.append(WorkerProcess(*arguments, *self._options, url=self.url, directory=directory, env=env))
        return self._workers[-1].wait_ready(executors)

    def connect(self, namespace: str | None = None) -> Client:
        """Make this process a driver of it."""
        self._before = client_module.swap_default(None)
        return connect(self.url, namespace=namespace)

    def disconnect(self) -> None:
        """Undo `connect`: nothing that was declared, and no default client, is left for the next test."""
        client_module.driver_scope.close()
        client_module.swap_default(self._before)

    def end(self) -> None:
        """End the workers, checked to leave nothing behind, then the server."""
        workers: list[Process] = list(reversed(self._workers))
        try:
            for worker in workers:
                worker.end()
        finally:
            for worker in workers:
                worker.kill()
                print(f"--- output of {worker}\n{worker.output}")
            self.redis.close()
            self.server.remove()


def executor_pid(client: redis.Redis, name: str) -> int:
    """The process id an executor registered under."""
    return int(client.hget(f"rq:worker:{name}", "pid") or 0)
