"""Processes that tests start: bound to the life of the test run, found again with all their descendants."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.waiting import eventually

FAMILY_VARIABLE = "TEST_PROCESS_FAMILY"
# Variables that would change what the command under test does.
FOREIGN_PREFIXES = ("ENVQ_", "RQ_", "REDIS_", "PYTHON", "COVERAGE_", "PYTEST_")

# The kernel kills the process when the test run dies, even by SIGKILL. The child asks for it, then becomes
# the command: `preexec_fn` would run in a forked copy of a process with threads, which Python warns of.
BOUND_TO_PARENT = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the test run is gone")
os.execvp(sys.argv[2], sys.argv[2:])
"""


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of this process without what steers envq, RQ or Python, plus `extra`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN_PREFIXES)}
    return kept | {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"} | dict(extra or {})


class Process:
    """A command in a process group of its own, its output in a file."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        cwd: Path,
        output_file: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.command = [str(part) for part in command]
        self.family = uuid.uuid4().hex
        self._output_file = output_file
        with output_file.open("ab") as output:
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", BOUND_TO_PARENT, str(os.getpid()), *self.command],
                cwd=cwd,
                env=clean_environment(env) | {FAMILY_VARIABLE: self.family},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    @property
    def output(self) -> str:
        """What it wrote so far, stdout and stderr in order."""
        return self._output_file.read_text(errors="replace")

    def send(self, signal_number: int) -> None:
        if self.running:
            self._popen.send_signal(signal_number)

    def wait(self, timeout: float = 10.0) -> int:
        """Wait until it ends by itself; return the exit code (negative: the signal)."""
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self} still runs after {timeout} s; its output:\n{self.output}") from None

    def stop(self, timeout: float = 10.0) -> int:
        """Ask it to stop (SIGTERM) and wait; return the exit code."""
        self.send(signal.SIGTERM)
        return self.wait(timeout)

    def kill(self) -> None:
        """Kill it and all its descendants at once, as a power cut does."""
        if self.running:
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()
        eventually(self._kill_descendants)

    def descendants(self) -> list[int]:
        """Pids of all living processes that it started, directly or not, orphans among them."""
        return [pid for pid in pids_of_family(self.family) if pid != self.pid]

    def end(self) -> None:
        """End it after a test: warm stop, cold stop, kill; anything left behind is an `AssertionError`."""
        stopped = self._stop_within_seconds(5.0) or self._stop_within_seconds(5.0)
        try:
            assert stopped, f"{self} did not end on two SIGTERMs; its output:\n{self.output}"
            eventually(self._assert_nothing_left, timeout=10.0)
        finally:
            self.kill()

    def _stop_within_seconds(self, seconds: float) -> bool:
        self.send(signal.SIGTERM)
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _kill_descendants(self) -> bool:
        """Whether none was left to kill."""
        left = self.descendants()
        for pid in left:
            kill_if_there(pid)
        return not left

    def _assert_nothing_left(self) -> None:
        left = self.descendants()
        assert not left, f"{self} ended but left processes {left} behind; its output:\n{self.output}"

    def __repr__(self) -> str:
        return f"<{' '.join(self.command)} (pid {self.pid})>"


def pids_of_family(family: str) -> list[int]:
    """Living processes whose environment carries the mark; empty where there is no /proc."""
    mark = f"{FAMILY_VARIABLE}={family}".encode()
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if mark in environment_of(entry)]


def environment_of(process_directory: Path) -> bytes:
    """The raw environment; empty for zombies, other users' processes and those just gone."""
    try:
        return (process_directory / "environ").read_bytes()
    except OSError:
        return b""


def kill_if_there(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
