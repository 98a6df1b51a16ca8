"""The flags that several commands share, each with its environment variable."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer


@dataclass
class Invocation:
    """What the flags before any command's own work say; the outermost handler of errors reads it."""

    debug: bool = False


class LogLevel(StrEnum):
    """Least level that is logged."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


def flag(names: str, text: str, **more: Any) -> Any:
    """A flag from its names (the long one first); its variable is ENVQ_ and the long name in capitals."""
    long, *others = names.split()
    variable = "ENVQ_" + long.split("/")[0].removeprefix("--").replace("-", "_").upper()
    more.setdefault("envvar", variable)
    return typer.Option(long, *others, help=text, **more)


def _remember_debug(context: typer.Context, wanted: bool) -> bool:
    if wanted:
        context.ensure_object(Invocation).debug = True
    return wanted


Debug = Annotated[
    bool,
    flag("--debug", "Show the traceback of an error instead of one line.", callback=_remember_debug, is_eager=True),
]
Url = Annotated[
    str | None,
    flag(
        "--url -u",
        "Where Redis is: redis://, rediss://, unix:// or redis+sentinel://.",
        metavar="URL",
        envvar=["ENVQ_URL", "REDIS_URL"],
        show_default="redis://localhost:6379/0",
    ),
]
Namespace = Annotated[
    str | None,
    flag("--namespace", "Keeps deployments on one Redis apart.", metavar="NAME", show_default="default"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Label = Annotated[
    str | None,
    flag(
        "--name -n",
        "First part of the names of a worker's executors.",
        metavar="LABEL",
        show_default="the host's name",
    ),
]
Workers = Annotated[int, flag("--workers -w", "How many executors.", metavar="N", min=1)]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", metavar="SECONDS", min=0, help="Give up after so long.", show_default="never"),
]


@dataclass(frozen=True)
class DemoOptions:
    """What ``envq demo`` was asked for."""

    workers: int
    json: bool
    fast: bool
    without_reset: bool
