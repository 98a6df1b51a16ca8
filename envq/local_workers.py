"""A server and workers of our own beside this process, for trying things, scripts and notebooks."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, Literal

from envq.child_process import start_bound, stop
from envq.driver.client import Client, connect, driver_scope, swap_default
from envq.embedded import EmbeddedServer
from envq.errors import EnvqError
from envq.settings import DEFAULT_NAMESPACE

START_TIMEOUT_S: Final = 30.0
STOP_PATIENCE_S: Final = (10.0, 5.0)  # warm, then cold, then killed
LINES_KEPT: Final = 30  # of what a worker wrote, to tell why it did not start
_POLL_S: Final = 0.02

StreamName = Literal["stdout", "stderr"]
ShowLine = Callable[[StreamName, str], None]


def show_line(stream: StreamName, line: str) -> None:
    """Print a worker's line where this process prints, in one write, so that lines stay whole."""
    target = sys.stdout if stream == "stdout" else sys.stderr
    with contextlib.suppress(OSError, ValueError):  # closed at the end of the program
        target.write(line + "\n")
        target.flush()


@dataclass(frozen=True)
class LocalConfig:
    """What to start beside this process; ``options`` are further flags of ``envq worker``."""

    workers: int = 2
    queues: Sequence[str] = ("default",)
    namespace: str = DEFAULT_NAMESPACE
    options: Sequence[str] = ("--log-level", "WARNING")
    show: ShowLine = field(default=show_line)
    import_paths: Sequence[str] = ()


class LocalWorkers:
    """One ``envq worker`` command as a child; what its jobs print arrives here line by line."""

    def __init__(self, url: str, config: LocalConfig) -> None:
        self._url = url
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None
        self._readers: list[threading.Thread] = []
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)

    def start(self) -> None:
        """Start it; returns at once."""
        process = start_bound(self._command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._process = process
        assert process.stdout is not None
        assert process.stderr is not None
        self._read("stdout", process.stdout)
        self._read("stderr", process.stderr)

    def wait_ready(self, client: Client) -> None:
        """Wait until all executors are registered; raises EnvqError, with its output, if it ends before."""
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._registered(client) < self._config.workers:
            if self._process.poll() is not None:
                raise EnvqError(self._why(f"ended with code {self._process.returncode}"))
            if time.monotonic() > deadline:
                raise EnvqError(self._why(f"did not start within {START_TIMEOUT_S:g} s"))
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """Stop it warmly, after a while coldly, and show the rest of its output."""
        if self._process is not None:
            stop(self._process, patience_s=STOP_PATIENCE_S)
            self._join_readers()

    def _command(self) -> list[str]:
        config = self._config
        # -P: a folder `envq` below the working folder must not be taken for this package.
        command = [sys.executable, "-P", "-m", "envq", "worker", *config.queues]
        command += ["--workers", str(config.workers), "--url", self._url, "--namespace", config.namespace]
        command += ["--label-output", "--name", "local"]
        for folder in config.import_paths:
            command += ["--path", folder]
        return [*command, *config.options]

    def _read(self, stream: StreamName, pipe: IO[bytes]) -> None:
        reader = threading.Thread(target=self._pump, args=(stream, pipe), name=f"envq-{stream}", daemon=True)
        reader.start()
        self._readers.append(reader)

    def _pump(self, stream: StreamName, pipe: IO[bytes]) -> None:
        with pipe:
            for raw in pipe:
                line = raw.decode(errors="replace").rstrip("\n")
                self._lines.append(line)
                self._config.show(stream, line)

    def _registered(self, client: Client) -> int:
        assert self._process is not None
        return sum(view.info.supervisor_pid == self._process.pid for view in client.executors.all())

    def _join_readers(self) -> None:
        # A process that a job left behind may hold the pipe open; its output is not waited for.
        for reader in self._readers:
            reader.join(timeout=1.0)

    def _why(self, what: str) -> str:
        self._join_readers()
        output = "\n".join(self._lines) or "(it wrote nothing)"
        return f"the local worker {what}; its output:\n{output}"


def _script_folder() -> tuple[str, ...]:
    """Where the running script lies, so that workers find the modules beside it; () where there is no script."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if file is None or getattr(main, "__spec__", None) is not None:  # interactive, or python -m
        return ()
    return (str(Path(file).resolve().parent),)


@contextmanager
def workers_on(url: str, config: LocalConfig) -> Generator[Client]:
    """Workers on a server that runs, this process connected to it by default; both undone at the end."""
    workers = LocalWorkers(url, config)
    mode = driver_scope.mode
    former = swap_default(None)
    try:
        workers.start()
        driver_scope.declare_again()  # a server of our own knows nothing of what went to another one
        client = connect(url, namespace=config.namespace)
        workers.wait_ready(client)
        yield client
        swap_default(None)
        client.connection.close()
    finally:
        driver_scope.mode = mode
        swap_default(former)
        workers.stop()


@contextmanager
def local(
    workers: int = 2,
    queues: Sequence[str] = ("default",),
    *,
    namespace: str = DEFAULT_NAMESPACE,
    options: Sequence[str] = ("--log-level", "WARNING"),
    show: ShowLine = show_line,
) -> Generator[Client]:
    """
    An embedded server and so many executors; what is enqueued inside the block runs there.

    What this process declared before is declared there too, wherever else it was published.

    What jobs print appears here as whole lines that name the executor and the job. At the end of the block all is
    stopped, its data gone, and the default client is what it was before.

    Args:
        options: further flags of ``envq worker``, for example ``("--check-resets",)``
        show: called with "stdout" or "stderr" and each line, from a thread of its own
    """
    config = LocalConfig(workers, queues, namespace, options, show, _script_folder())
    with EmbeddedServer() as server, workers_on(server.url, config) as client:
        yield client
