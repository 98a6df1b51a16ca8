"""Help for a group that is called without a command."""

from __future__ import annotations

import typer


def show_help_if_alone(context: typer.Context) -> None:
    """Print the group's help where no command follows."""
    if context.invoked_subcommand is None:
        text = context.get_help()
        if text:
            print(text)
