"""A Redis task queue whose workers hold environment variables: objects built once, clean for every job."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rq.callbacks import Callback
    from rq.group import Group
    from rq.job import Dependency, Retry
    from rq.rate_limit import RateLimit
    from rq.repeat import Repeat
    from rq.webhook import Webhook

    from envq import testing
    from envq.code.payload import ship
    from envq.driver.client import Client, connect, env
    from envq.driver.readiness import wait_ready
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
    from envq.jobs.job import Job
    from envq.jobs.queue import Queue
    from envq.jobs.results import get
    from envq.jobs.task import AsyncTask, Task, task
    from envq.local_workers import local
    from envq.variables import REBUILD, EnvironmentVariable

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

# Where each name is defined. Imported at its first use: rq and redis take a quarter of a second, which the
# command line does not want to pay for its help.
_HOMES = {
    "Callback": "rq.callbacks",
    "Group": "rq.group",
    "Dependency": "rq.job",
    "Retry": "rq.job",
    "RateLimit": "rq.rate_limit",
    "Repeat": "rq.repeat",
    "Webhook": "rq.webhook",
    "ship": "envq.code.payload",
    "Client": "envq.driver.client",
    "connect": "envq.driver.client",
    "env": "envq.driver.client",
    "wait_ready": "envq.driver.readiness",
    "Job": "envq.jobs.job",
    "Queue": "envq.jobs.queue",
    "get": "envq.jobs.results",
    "AsyncTask": "envq.jobs.task",
    "Task": "envq.jobs.task",
    "task": "envq.jobs.task",
    "local": "envq.local_workers",
    "REBUILD": "envq.variables",
    "EnvironmentVariable": "envq.variables",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'envq' has no attribute {name!r}")
    if name == "testing":
        return importlib.import_module("envq.testing")
    value = globals()[name] = getattr(importlib.import_module(_HOMES.get(name, "envq.errors")), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
