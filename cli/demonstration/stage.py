"""The processes of the demo: an embedded server, an ``envq worker`` in an empty folder, and drivers one by one."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from redis import Redis

from envq.child_process import start_bound, stop
from envq.cli.demonstration.claims import Backstage
from envq.embedded import EmbeddedServer
from envq.store.connection import driver_client

SCRIPTS: Final = Path(__file__).with_name("scripts")
NAMESPACE: Final = "demo"
DRIVER_TIMEOUT_S: Final = 180.0
TICK_S: Final = 0.1
DRIVER_PATIENCE_S: Final = (2.0,)
WORKER_PATIENCE_S: Final = (5.0, 2.0)  # warm, then cold, then killed
LINES_SHOWN: Final = 12  # of what a process wrote, where it failed


@dataclass
class Stage:
    """What runs, and what is seen of it."""

    url: str
    server_pid: int
    executors: int
    folder: Path  # where the worker was started; nothing is ever put there
    logs: Path
    connection: Redis
    worker: subprocess.Popen[bytes]
    driver_codes: dict[str, int] = field(default_factory=dict[str, int])

    def play(self, name: str, arguments: Sequence[str], tick: Callable[[], None]) -> None:
        """Run one driver as ``__main__`` to its end, calling ``tick`` meanwhile."""
        command = [sys.executable, str(SCRIPTS / f"{name}.py"), self.url, "--executors", str(self.executors)]
        with self.log(name).open("wb") as log:
            driver = start_bound([*command, *arguments], stdout=log, stderr=log)
            try:
                self._watch(driver, tick)
            finally:
                self.driver_codes[name] = _ended(driver)

    def _watch(self, driver: subprocess.Popen[bytes], tick: Callable[[], None]) -> None:
        """Until it has ended, or waits in vain: for too long, or for a worker that is gone."""
        deadline = time.monotonic() + DRIVER_TIMEOUT_S
        while driver.poll() is None and self.worker_runs and time.monotonic() < deadline:
            tick()
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(TICK_S)

    @property
    def worker_runs(self) -> bool:
        """Whether the worker that was started at first is still there."""
        return self.worker.poll() is None

    def log(self, name: str) -> Path:
        """The file with what a process wrote."""
        return self.logs / f"{name}.log"

    def last_words(self, name: str) -> list[str]:
        """The end of what a process wrote."""
        return self.log(name).read_text(errors="replace").splitlines()[-LINES_SHOWN:]

    def backstage(self) -> Backstage:
        """What is to be said of the processes when all drivers have ended."""
        files = sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))
        return Backstage(self.executors, dict(self.driver_codes), self.worker_runs, self.worker.pid, tuple(files))


@contextlib.contextmanager
def staged(executors: int) -> Generator[Stage, None, None]:
    """Start the server and the worker; whatever happens, both are gone at the end, with their folders."""
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="envq-demo-"))).resolve()
        server = stack.enter_context(EmbeddedServer())
        connection = stack.enter_context(driver_client(server.url))
        folder, logs = root / "worker", root / "logs"
        folder.mkdir()
        logs.mkdir()
        stack.enter_context(contextlib.chdir(folder))
        worker = _start_worker(server.url, executors, logs / "worker.log")
        stack.callback(stop, worker, patience_s=WORKER_PATIENCE_S)
        yield Stage(server.url, server.pid, executors, folder, logs, connection, worker)


def _start_worker(url: str, executors: int, log_file: Path) -> subprocess.Popen[bytes]:
    options = ["--workers", str(executors), "--url", url, "--namespace", NAMESPACE, "--name", "demo"]
    with log_file.open("wb") as log:
        return start_bound([*_envq(), "worker", "default", *options], stdout=log, stderr=log)


def _envq() -> list[str]:
    """The installed command, as a shell would find it with our environment active."""
    script = Path(sysconfig.get_path("scripts")) / "envq"
    return [str(script)] if script.is_file() else [sys.executable, "-m", "envq"]


def _ended(driver: subprocess.Popen[bytes]) -> int:
    code = driver.poll()
    return stop(driver, patience_s=DRIVER_PATIENCE_S) if code is None else code
