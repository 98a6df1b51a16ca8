"""A Redis task queue whose workers hold environment variables: objects built once, clean for every job."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rq.callbacks import Callback
from rq.group import Group
from rq.job import Dependency, Retry
from rq.rate_limit import RateLimit
from rq.repeat import Repeat
from rq.webhook import Webhook

from envq.client import Client, connect
from envq.environment import env
from envq.errors import (
    CodeMissing,
    ConfigurationError,
    DependencyCycle,
    DriverReadRefused,
    EnvironmentVariableError,
    EnvironmentVariableFailed,
    EnvqError,
    GetTimeout,
    InvalidDeclaration,
    JobCancelled,
    JobError,
    JobFailed,
    JobGone,
    JobInterrupt,
    JobStopped,
    JobStopRequested,
    JobTimedOut,
    NotDeclared,
    PayloadError,
    PayloadTooLarge,
    PythonVersionMismatch,
    ResultNotKept,
    ServerUnavailable,
    WorkerLost,
)
from envq.job import Job
from envq.payload import ship
from envq.queue import Queue
from envq.readiness import wait_ready
from envq.results import get
from envq.task import AsyncTask, Task, task
from envq.variables import REBUILD, EnvironmentVariable

if TYPE_CHECKING:
    from envq import testing
    from envq.local_workers import local

__all__ = [
    # connecting
    "connect",
    "Client",
    # environment variables
    "env",
    "EnvironmentVariable",
    "REBUILD",
    "ship",
    "wait_ready",
    # jobs
    "task",
    "Task",
    "AsyncTask",
    "get",
    "Queue",
    "Job",
    # RQ's, as they are
    "Callback",
    "Dependency",
    "Group",
    "RateLimit",
    "Repeat",
    "Retry",
    "Webhook",
    # trying it out, and tests
    "local",
    "testing",
    # errors
    "EnvqError",
    "ConfigurationError",
    "ServerUnavailable",
    "PayloadError",
    "PayloadTooLarge",
    "PythonVersionMismatch",
    "CodeMissing",
    "EnvironmentVariableError",
    "InvalidDeclaration",
    "NotDeclared",
    "EnvironmentVariableFailed",
    "DependencyCycle",
    "DriverReadRefused",
    "JobError",
    "JobFailed",
    "WorkerLost",
    "JobStopped",
    "JobCancelled",
    "JobGone",
    "ResultNotKept",
    "GetTimeout",
    "JobInterrupt",
    "JobTimedOut",
    "JobStopRequested",
]


def __getattr__(name: str) -> Any:
    """Import what few programs need when it is first asked for."""
    if name == "local":
        return importlib.import_module("envq.local_workers").local
    if name == "testing":
        return importlib.import_module("envq.testing")
    raise AttributeError(f"module 'envq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
