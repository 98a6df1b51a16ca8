"""A Redis server of our own, a client that needs no package, and a server that is not next door."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

_OPTIONS = ("--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--databases", "64")
_START_WITHIN_S = 10.0
_SENT = re.compile(rb'^\+[\d.]+ \[\d+ (?!lua\])\S+\] "(\w+)"', re.MULTILINE)  # a line of MONITOR
_OWN_COMMANDS = frozenset({"info", "config", "flushall", "ping"})


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _until_connected(port: int, process: subprocess.Popen[bytes]) -> socket.socket:
    end = time.monotonic() + _START_WITHIN_S
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"{process.args!r} ended with code {process.returncode}")
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.02)
    raise SystemExit(f"nothing listens on port {port}")


class Calls(NamedTuple):
    """What INFO commandstats says of one command."""

    calls: int
    usec: int


class Connection:
    """Just enough RESP2."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._file = connected.makefile("rb")

    def __call__(self, *arguments: object) -> Any:
        parts = [each if isinstance(each, bytes) else str(each).encode() for each in arguments]
        bulk = b"".join(b"$%d\r\n%s\r\n" % (len(each), each) for each in parts)
        self._socket.sendall(b"*%d\r\n" % len(parts) + bulk)
        return self._read()

    def _read(self) -> Any:
        line = self._file.readline()[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"+":
            return rest.decode()
        n = int(rest)
        if kind == b":":
            return n
        if n < 0:
            return None
        if kind == b"$":
            return self._file.read(n + 2)[:-2].decode("utf-8", "replace")
        return [self._read() for _ in range(n)]

    def close(self) -> None:
        """Disconnect."""
        self._file.close()
        self._socket.close()

    def info(self, section: str) -> dict[str, str]:
        """One section of INFO."""
        pairs = (line.partition(":") for line in str(self("INFO", section)).splitlines())
        return {name: value for name, _, value in pairs}

    def command_stats(self) -> dict[str, Calls]:
        """What was called since RESETSTAT, without what this module calls itself; inside MULTI and Lua as well."""
        stats: dict[str, Calls] = {}
        for key, value in self.info("commandstats").items():
            name = key.removeprefix("cmdstat_")
            if key != name and name.split("|")[0] not in _OWN_COMMANDS:
                fields = dict(each.split("=") for each in value.split(","))
                stats[name] = Calls(int(fields["calls"]), int(fields["usec"]))
        return stats

    def cpu_s(self) -> float:
        """CPU seconds of the server so far."""
        info = self.info("cpu")
        return float(info["used_cpu_sys"]) + float(info["used_cpu_user"])

    def memory_bytes(self) -> int:
        """What the data take, as the server counts it."""
        return int(self.info("memory")["used_memory"])

    def version(self) -> str:
        """Of the server."""
        return self.info("server")["redis_version"]


class RedisServer:
    """On a free loopback port, without persistence; stopped by its pid."""

    connection: Connection

    def __init__(self, *, rtt_ms: float = 0.0, binary: str = "redis-server") -> None:
        self.port = free_port()
        self._proxy: subprocess.Popen[bytes] | None = None
        self._url_port = self.port
        self._folder = tempfile.mkdtemp(prefix="bench-redis-")
        self._process = subprocess.Popen(
            [binary, *_OPTIONS, "--port", str(self.port), "--dir", self._folder],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.connection = Connection(_until_connected(self.port, self._process))
        if rtt_ms:
            self._delay(rtt_ms)

    def _delay(self, rtt_ms: float) -> None:
        """Between the peers and this server; what the harness asks stays direct."""
        self._url_port = free_port()
        self._proxy = subprocess.Popen(
            [sys.executable, "-m", "harness.rtt_proxy", str(self._url_port), str(self.port), str(rtt_ms)],
            cwd=Path(__file__).parents[1],
            start_new_session=True,
        )
        _until_connected(self._url_port, self._proxy).close()

    def url(self, database: int = 0) -> str:
        """What the peers are given."""
        return f"redis://127.0.0.1:{self._url_port}/{database}"

    def commands_sent(self, seconds: float) -> Counter[str]:
        """What clients send in so many seconds, by name; unlike ``command_stats`` without what scripts call."""
        with socket.create_connection(("127.0.0.1", self.port)) as watcher:
            watcher.sendall(b"MONITOR\r\n")
            time.sleep(seconds)
            watcher.setblocking(False)
            lines = b""
            try:
                while more := watcher.recv(1 << 20):
                    lines += more
            except BlockingIOError:
                pass  # that was all so far
        return Counter(name.decode().lower() for name in _SENT.findall(lines))

    def empty(self) -> None:
        """Delete everything, and count anew."""
        self.connection("FLUSHALL")
        self.connection("CONFIG", "RESETSTAT")

    def stop(self) -> None:
        """End both processes."""
        self.connection.close()
        if self._proxy is not None:
            self._proxy.kill()
            self._proxy.wait()
        self._process.terminate()
        self._process.wait(30)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
