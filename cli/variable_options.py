"""The flags and arguments of ``envq env`` that describe a variable."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class BuildWhen(StrEnum):
    """When an executor builds it."""

    EAGER = "eager"
    LAZY = "lazy"


class ReplaceHow(StrEnum):
    """In which order a new version takes over."""

    KEEP = "keep"
    FREE = "free"


VariableName = Annotated[str, typer.Argument(metavar="NAME", help="The variable's name.")]
Names = Annotated[list[str], typer.Argument(metavar="NAMES", help="One or more variables.")]
Wait = Annotated[bool, typer.Option("--wait", help="Return when every executor has done it.")]
Build = Annotated[BuildWhen, typer.Option("--build", help="Before jobs run, or at the first read.", show_default=True)]
Replace = Annotated[
    ReplaceHow, typer.Option("--replace", help="Build the new value before letting the old one go, or after.")
]
