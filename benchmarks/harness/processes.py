"""Producers and workers of a peer as processes, and what the kernel tells of them."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from peers.common import Peer

FOLDER = Path(__file__).resolve().parents[1]
PRODUCER_WITHIN_S = 900.0
# Variables that would change what is measured.
_FOREIGN = ("ENVQ_", "RQ_", "REDIS_", "PYTHON", "BENCH_", "CELERY_")


class Failed(Exception):
    """A peer did not do what was measured; the text says what it did."""


def venv_bin(name: str) -> Path:
    """Where the commands of a peer are."""
    root = os.environ.get("PEERS_VENVS")
    if not root:
        raise SystemExit("set PEERS_VENVS to the folder that benchmarks/peers/make_venvs.sh has filled")
    return Path(root) / name / "bin"


class Subject(NamedTuple):
    """One configuration of one peer, by the name ``peer:configuration``."""

    name: str
    peer: Peer

    @classmethod
    def of(cls, name: str, url: str = "") -> Self:
        """SystemExit for a name that nobody has."""
        module, _, config = name.partition(":")
        if not (FOLDER / "peers" / f"peer_{module}.py").exists():
            raise SystemExit(f"no such peer: {module}")
        kind: type[Peer] = importlib.import_module(f"peers.peer_{module}").Peer
        if config not in kind.configs:
            raise SystemExit(f"no such configuration: {name} (there are: {', '.join(kind.configs)})")
        return cls(name, kind(config, url))

    @property
    def module(self) -> str:
        """Of the peer, as a child process imports it."""
        return f"peers.peer_{self.name.partition(':')[0]}"

    @property
    def bin(self) -> Path:
        """Where its commands are."""
        return venv_bin(self.peer.config.get("venv", self.peer.venv))


def subject_names() -> list[str]:
    """All configurations of all peers."""
    modules = sorted(path.stem.removeprefix("peer_") for path in (FOLDER / "peers").glob("peer_*.py"))
    return [f"{name}:{key}" for name in modules for key in importlib.import_module(f"peers.peer_{name}").Peer.configs]


def child_env(extra: Mapping[str, str]) -> dict[str, str]:
    """Of this process without what would change the result, and with what children import from here."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    return kept | {"PYTHONPATH": str(FOLDER)} | dict(extra)


def subject_env(subject: Subject, records: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """What a producer or worker of the peer is started with."""
    own = {"BENCH_CONFIG": subject.peer.key, "BENCH_URL": subject.peer.url, "BENCH_RECORDS": str(records)}
    return child_env(own | dict(extra))


def run_json(argv: Iterable[object], env: Mapping[str, str], timeout_s: float = PRODUCER_WITHIN_S) -> Any:
    """The last line that a command prints, parsed."""
    command = [str(each) for each in argv]
    try:
        done = subprocess.run(command, cwd=FOLDER, env=env, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{' '.join(command[1:5])} took over {timeout_s:g} s") from error
    if done.returncode:
        raise Failed(f"{' '.join(command[1:5])}: {done.stderr.strip()[-600:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def producer_argv(subject: Subject, operation: str, options: Mapping[str, object]) -> list[str]:
    """The command of one operation of ``peers.producer``."""
    return [str(subject.bin / "python"), "-m", "peers.producer", subject.module, operation, json.dumps(options)]


def produce(
    subject: Subject, records: Path, operation: str, env: Mapping[str, str] | None = None, **options: object
) -> Any:
    """Run one operation to its end; returns what it printed."""
    return run_json(producer_argv(subject, operation, options), subject_env(subject, records, env or {}))


class Memory(NamedTuple):
    """Of all processes together."""

    rss_kib: int
    pss_kib: int
    processes: int


class Workers:
    """Worker processes of a peer; each command leads a session, by which its descendants are found."""

    def __init__(
        self, subject: Subject, records: Path, log: Path, n: int = 1, env: Mapping[str, str] | None = None
    ) -> None:
        self.commands: list[subprocess.Popen[bytes]] = []
        self.log = log
        self.spawned_ns = time.monotonic_ns()
        with log.open("ab") as output:
            for argv, extra in subject.peer.worker_commands(str(subject.bin), n):
                self.commands.append(
                    subprocess.Popen(
                        argv,
                        cwd=FOLDER,
                        env=subject_env(subject, records, {**(env or {}), **extra}),
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )

    def pids(self) -> list[int]:
        """All living processes of the sessions."""
        sessions = {command.pid for command in self.commands}
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [pid for pid in pids if (fields := _stat(pid)) and int(fields[3]) in sessions]

    def cpu_s(self) -> float:
        """CPU seconds of the tree, reaped children included."""
        ticks = sum(sum(map(int, fields[11:15])) for pid in self.pids() if (fields := _stat(pid)))
        return ticks / os.sysconf("SC_CLK_TCK")

    def memory(self) -> Memory:
        """What they take now."""
        found: list[dict[str, int]] = []
        for pid in self.pids():
            try:
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
            except OSError:
                continue
            found.append({name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)})
        return Memory(sum(each["Rss"] for each in found), sum(each["Pss"] for each in found), len(found))

    @property
    def alive(self) -> bool:
        """Whether a command runs."""
        return any(command.poll() is None for command in self.commands)

    def kill(self) -> None:
        """SIGKILL to every process of our own sessions, as if the machine was lost."""
        while pids := [pid for pid in self.pids() if (fields := _stat(pid)) and fields[0] != "Z"]:
            for pid in pids:
                _kill(pid)
            for command in self.commands:
                command.wait()
        for command in self.commands:
            command.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty where the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
