"""Every exception envq raises, as one tree.

EnvqError
├── ConfigurationError            a setting, flag, URL or middleware path that cannot be used
├── ServerUnavailable             Redis cannot be reached, or refuses what is asked
├── PayloadError                  code, arguments or a result that cannot travel
│   ├── PayloadTooLarge           over the size limit
│   ├── PythonVersionMismatch     by-value code made by another Python minor version
│   └── CodeMissing               the code a job needs is no longer in Redis
├── EnvironmentVariableError      anything about one variable; has .name
│   ├── InvalidDeclaration        (also a TypeError) not an EnvironmentVariable, or a bad one
│   ├── NotDeclared               (also an AttributeError) nobody declared this name
│   ├── EnvironmentVariableFailed its initializer failed; carries that traceback
│   ├── DependencyCycle           initializers that read each other in a circle
│   └── DriverReadRefused         read on a driver although declared with driver="never"
└── JobError                      what envq.get raises; has .job_id
    ├── JobFailed                 the job raised; carries the remote traceback
    │   └── WorkerLost            its process died too often, or once under on_crash="fail"
    ├── JobStopped                somebody stopped it
    ├── JobCancelled              somebody cancelled it before it ran
    ├── JobGone                   its record was deleted or has expired
    ├── ResultNotKept             it ended, but result_ttl=0 kept no result
    └── GetTimeout                (also a TimeoutError) no result within the timeout of get

JobInterrupt(BaseException)       raised *inside* a job, so that ``except Exception`` lets it pass
├── JobTimedOut                   its timeout
└── JobStopRequested              a stop command
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def headline(error: BaseException) -> str:
    """Its class and the first line of its text, in one short line; also where making the text raises."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - the user's __str__
        text = "<its text cannot be made>"
    return f"{type(error).__name__}: {text}".splitlines()[0][:200]


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """``; did you mean 'model'?`` where something known is written much like it, else nothing."""
    close = get_close_matches(given, sorted(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


class EnvqError(Exception):
    """Root of everything envq raises on purpose."""


class ConfigurationError(EnvqError):
    """A setting, flag, URL or import path cannot be used; the message says what to do."""


class ServerUnavailable(EnvqError):
    """Redis cannot be reached, or refuses what is asked for a state of its own or a missing right."""


class PayloadError(EnvqError):
    """Code, arguments or a result cannot be pickled, unpickled or sent."""


class PayloadTooLarge(PayloadError):
    """A pickled payload is larger than the limit in the settings."""


class PythonVersionMismatch(PayloadError):
    """By-value code was pickled by another Python minor version than the one that should run it."""


class CodeMissing(PayloadError):
    """The code blob a job or variable refers to is not in Redis any more."""


class EnvironmentVariableError(EnvqError):
    """Something about one variable, whose name is in ``name``."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.name)


class InvalidDeclaration(EnvironmentVariableError, TypeError):
    """What was assigned to ``envq.env.NAME`` cannot be declared."""


class NotDeclared(EnvironmentVariableError, AttributeError):
    """Nobody declared the variable; the message lists the known names."""


class EnvironmentVariableFailed(EnvironmentVariableError):
    """The variable could not be built; the message carries the initializer's traceback."""


class DependencyCycle(EnvironmentVariableError):
    """Initializers read each other in a circle; the message shows it."""


class DriverReadRefused(EnvironmentVariableError):
    """The variable was declared with ``driver="never"`` and is read outside a job."""


class JobError(EnvqError):
    """Why ``envq.get`` has no value to return; the job's id is in ``job_id``."""

    def __init__(self, message: str, job_id: str = "") -> None:
        super().__init__(message)
        self.job_id = job_id

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.job_id)


class JobFailed(JobError):
    """The job raised; the message ends with the remote traceback, also in ``remote_traceback``."""

    def __init__(self, message: str, job_id: str = "", remote_traceback: str = "") -> None:
        super().__init__(message, job_id)
        self.remote_traceback = remote_traceback

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.job_id, self.remote_traceback)


class WorkerLost(JobFailed):
    """The process that ran the job died, and the job may not run again."""


class JobStopped(JobError):
    """The job was stopped while it ran."""


class JobCancelled(JobError):
    """The job was cancelled and will not run."""


class JobGone(JobError):
    """The job's record was deleted or has expired."""


class ResultNotKept(JobError):
    """The job ended, but ``result_ttl=0`` means that its result was not kept."""


class GetTimeout(JobError, TimeoutError):
    """The job had no result within the timeout given to ``envq.get``; it may still run."""


class JobInterrupt(BaseException):
    """Raised inside a job from outside; not an ``Exception``, so that jobs do not swallow it."""


class JobTimedOut(JobInterrupt):
    """The job ran longer than its timeout."""


class JobStopRequested(JobInterrupt):
    """Somebody asked for this job to be stopped."""
