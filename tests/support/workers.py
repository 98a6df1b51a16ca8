"""`envq worker` as a process of its own, in a directory that holds none of the tests' code."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import redis

from support.processes import Process
from support.waiting import eventually

# Where RQ lists the keys of its registered workers; every executor of ours is one.
REGISTERED_WORKERS = "rq:workers"

EVERY_WORKER: list[str] = []  # options that pytest's --worker adds to each


class WorkerProcess(Process):
    """One `envq worker` command."""

    def __init__(
        self,
        *arguments: str,
        url: str,
        directory: Path,
        env: Mapping[str, str] | None = None,
        through: Sequence[str] = (),
    ) -> None:
        """``through``: a command that becomes the one behind it, `nice` say."""
        directory.mkdir(parents=True, exist_ok=True)
        self._url = url
        super().__init__(
            [*through, sys.executable, "-m", "envq", "worker", *EVERY_WORKER, *arguments],
            cwd=directory,
            output_file=directory / "output.log",
            env={"ENVQ_URL": url} | dict(env or {}),
        )

    def executors(self) -> list[str]:
        """Names of its registered executors: `<label>.<pid of this process>.<n>.<random>`."""
        with redis.Redis.from_url(self._url) as client:
            keys = [key.decode() for key in client.smembers(REGISTERED_WORKERS)]
        return sorted(key.removeprefix("rq:worker:") for key in keys if f".{self.pid}." in key)

    def wait_ready(self, executors: int = 1, timeout: float = 20.0) -> WorkerProcess:
        """Wait until so many executors are registered; a worker that ended is an error at once."""

        def registered_or_ended() -> bool:
            return not self.running or len(self.executors()) >= executors

        eventually(registered_or_ended, timeout)
        assert self.running, f"{self} ended with code {self.wait()} before it was ready:\n{self.output}"
        return self
