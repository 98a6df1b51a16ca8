"""A primary, a replica and three sentinels that watch them, on free ports of this machine."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import redis

from support.processes import Process
from support.servers import Server, free_port
from support.waiting import eventually

NAME = "mymaster"
CONFIGURATION = """
port {port}
bind 127.0.0.1
dir {directory}
sentinel monitor {name} 127.0.0.1 {primary} 2
sentinel down-after-milliseconds {name} 800
sentinel failover-timeout {name} 4000
"""
PASSWORDS = """
requirepass {password}
sentinel sentinel-pass {password}
"""


class Failover:
    """Two servers, of which the sentinels make the second the primary when the first is gone."""

    def __init__(self, binary: Path, password: str = "") -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="envq-sentinels-"))
        self.primary = Server(binary).start()
        self.replica = Server(binary, "--replicaof", "127.0.0.1", str(self.primary.port)).start()
        self._password = password
        self.ports = [free_port() for _ in range(3)]
        self._processes = [self._sentinel(binary, port) for port in self.ports]
        try:
            eventually(self._all_know, timeout=30)
        except BaseException:
            self.remove()
            raise

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def url(self) -> str:
        return f"redis+sentinel://{self.hosts}/0?master={NAME}"

    def address(self) -> tuple[str, int]:
        """Where the primary is, as the first sentinel says."""
        with redis.Redis(port=self.ports[0], password=self._password or None) as sentinel:
            host, port = sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        return host.decode(), int(port)

    def fail_over(self) -> None:
        """Kill the primary, and wait until the sentinels name the other."""
        self.primary.kill()
        eventually(lambda: self.address()[1] == self.replica.port, timeout=60)

    def stop_sentinels(self) -> None:
        for process in self._processes:
            process.kill()

    def remove(self) -> None:
        self.stop_sentinels()
        self.replica.remove()
        self.primary.remove()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _sentinel(self, binary: Path, port: int) -> Process:
        file = self.directory / f"{port}.conf"
        directory = self.directory / str(port)
        directory.mkdir()
        text = CONFIGURATION + (PASSWORDS if self._password else "")
        given = {"port": port, "directory": directory, "name": NAME, "primary": self.primary.port}
        file.write_text(text.format(**given, password=self._password))
        return Process([binary, file, "--sentinel"], cwd=directory, output_file=directory / "log")

    def _all_know(self) -> bool:
        """Whether each sentinel knows the two others and the replica, which has everything."""
        try:
            with self.replica.client() as replica:
                if replica.info("replication")["master_link_status"] != "up":
                    return False
            for port in self.ports:
                with redis.Redis(port=port, password=self._password or None) as sentinel:
                    state = sentinel.sentinel_masters()[NAME]
                    if state["num-other-sentinels"] < 2 or state["num-slaves"] < 1:
                        return False
        except redis.RedisError:
            return False
        return True
