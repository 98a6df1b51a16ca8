"""From an exception to the one line and the exit code that a user sees."""

from __future__ import annotations

import sys
import traceback
from typing import Any, Final, cast

import typer

from envq.errors import (
    ConfigurationError,
    EnvironmentVariableFailed,
    EnvqError,
    InvalidDeclaration,
    NotDeclared,
    PayloadError,
    ServerUnavailable,
)

EXIT_OK: Final = 0
EXIT_UNEXPECTED: Final = 1
EXIT_USAGE: Final = 2
EXIT_SERVER: Final = 3
EXIT_CONFIGURATION: Final = 4
EXIT_BUILD_FAILED: Final = 5
EXIT_INTERRUPTED: Final = 130  # what a shell reports for Ctrl-C
EXIT_PIPE_CLOSED: Final = 141  # and for a reader that went away

_CODES: Final[tuple[tuple[type[EnvqError], int], ...]] = (
    (ServerUnavailable, EXIT_SERVER),
    (ConfigurationError, EXIT_CONFIGURATION),
    (InvalidDeclaration, EXIT_CONFIGURATION),
    (PayloadError, EXIT_CONFIGURATION),
    (NotDeclared, EXIT_USAGE),
    (EnvironmentVariableFailed, EXIT_BUILD_FAILED),
)


def report(error: BaseException, *, debug: bool) -> int:
    """Tell the user what went wrong on stderr; returns the exit code."""
    line, code = explained(error)
    if debug and line:
        traceback.print_exception(error)
    if line:
        print(f"envq: {line}", file=sys.stderr)
    return code


def explained(error: BaseException) -> tuple[str, int]:
    """The line, "" where nothing needs saying, and the exit code."""
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return "", EXIT_INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return "", EXIT_PIPE_CLOSED
    if hasattr(error, "format_message"):
        return _usage(cast(Any, error))
    if isinstance(error, EnvqError):
        return one_line(str(error)), exit_code(error)
    return (
        f"unexpected {type(error).__name__}: {one_line(str(error))} (--debug shows the traceback)",
        EXIT_UNEXPECTED,
    )


def exit_code(error: EnvqError) -> int:
    """The documented code for an error of our own."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), EXIT_UNEXPECTED)


def one_line(text: str) -> str:
    """The text without its line breaks."""
    return " ".join(text.split())


def _usage(error: Any) -> tuple[str, int]:
    """A usage error of the command line library, which has a class of its own in each of its versions."""
    message = one_line(error.format_message()).rstrip(".")
    context = getattr(error, "ctx", None)
    source = _source_of_value(error, context)
    if source:
        return f"{source}: {message}", EXIT_CONFIGURATION
    command = context.command_path if context is not None else "envq"
    return f"{message}; see {command} --help", EXIT_USAGE


def _source_of_value(error: Any, context: Any) -> str:
    """Where a bad value comes from, unless it was typed."""
    parameter = getattr(error, "param", None)
    if context is None or parameter is None:
        return ""
    source = context.get_parameter_source(parameter.name)
    if source is None:
        return ""
    if source.name == "ENVIRONMENT":
        return variables_of(parameter)
    return "configuration file" if source.name == "DEFAULT_MAP" else ""


def variables_of(parameter: Any) -> str:
    """The environment variables a flag's value may come from."""
    names = cast(str | list[str], parameter.envvar)
    return names if isinstance(names, str) else " or ".join(names)
