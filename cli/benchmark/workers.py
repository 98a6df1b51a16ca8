"""Who runs the jobs: a worker that the run starts for itself, or those that are there."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final, Protocol

from envq.child_process import start_bound, stop
from envq.cli.health import TAKES_JOBS
from envq.cli.overview import living
from envq.cli.target import Target
from envq.errors import ConfigurationError, EnvqError
from envq.settings import Settings

START_TIMEOUT_S: Final = 60.0
STOP_PATIENCE_S: Final = (10.0, 5.0)  # warm, then cold, then killed
LAST_WORDS: Final = 5  # lines of what a worker wrote, where it ended
_POLL_S: Final = 0.02


class Workers(Protocol):
    """Executors that listen on the queue."""

    def sizes(self) -> list[int]:
        """With how many executors to measure, one after the other."""
        ...

    def have(self, executors: int) -> None:
        """Return when so many take jobs."""
        ...

    def check(self) -> None:
        """Raise EnvqError if nobody is left to run a job."""
        ...

    def stop(self) -> None:
        """End what was started here."""
        ...


class OwnWorker:
    """
    An ``envq worker`` as a child, its output in a file.

    Args:
        settings: where it works; the URL is the one it connects to
        label: first part of its executors' names
        log: the file for what it writes
    """

    def __init__(
        self, target: Target, settings: Settings, queue: str, executors: int, label: str, log_level: str, log: Path
    ) -> None:
        self._target = target
        self._executors = executors
        self._log = log
        self._command = [
            # `env` puts the password of a URL into the environment, where other users do not see it.
            *("env", f"ENVQ_URL={settings.url}", f"ENVQ_NAMESPACE={settings.namespace}"),
            *(sys.executable, "-P", "-m", "envq", "worker", queue),
            *("--name", label, "--log-level", log_level, "--no-scheduler"),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def sizes(self) -> list[int]:
        return sorted({1, self._executors})

    def have(self, executors: int) -> None:
        self.stop()
        with self._log.open("wb") as log:
            self._process = start_bound([*self._command, "--workers", str(executors)], stdout=log, stderr=log)
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._ready(self._process.pid) < executors:
            self.check()
            if time.monotonic() > deadline:
                raise EnvqError(f"the worker took no jobs within {START_TIMEOUT_S:g} s{self._last_words()}")
            time.sleep(_POLL_S)

    def check(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise EnvqError(f"the worker ended with code {self._process.returncode}{self._last_words()}")

    def stop(self) -> None:
        if self._process is not None:
            stop(self._process, patience_s=STOP_PATIENCE_S)
            self._process = None

    def _ready(self, pid: int) -> int:
        return sum(view.state in TAKES_JOBS and view.info.supervisor_pid == pid for view in living(self._target))

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-LAST_WORDS:]
        return f"; it wrote at last: {' / '.join(lines)}" if lines else "; it wrote nothing"


class RunningWorkers:
    """Those of the deployment that listen on a queue; ConfigurationError where there are none."""

    def __init__(self, target: Target, queue: str) -> None:
        self._target = target
        self._queue = queue
        if not self._count():
            raise ConfigurationError(
                f"no executor listens on queue {queue!r} in namespace {target.settings.namespace!r}: "
                f"start one (envq worker {queue}), or measure without --no-worker"
            )

    def sizes(self) -> list[int]:
        return [self._count()]

    def have(self, executors: int) -> None:
        pass

    def check(self) -> None:
        if not self._count():
            raise EnvqError(f"the last executor that listened on queue {self._queue!r} is gone")

    def stop(self) -> None:
        pass

    def _count(self) -> int:
        return sum(self._queue in view.info.queues for view in living(self._target))
