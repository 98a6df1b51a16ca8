"""``envq jobs``: single jobs of a deployment. Signatures only; the work is in jobs_*.py."""

from __future__ import annotations

from typing import Annotated

import typer

from envq.cli.help import show_help_if_alone
from envq.cli.options import Debug, Namespace, Url

group = typer.Typer(name="jobs", help="Single jobs: cancelled.", invoke_without_command=True)

Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of jobs.")]


@group.callback()
def jobs(context: typer.Context) -> None:
    """Single jobs, by their ids; nothing of them is unpickled."""
    show_help_if_alone(context)


@group.command(short_help="Cancel jobs that wait, stop those that run.")
def cancel(
    ids: Ids,
    enqueue_dependents: Annotated[
        bool, typer.Option("--enqueue-dependents", help="Run what waits for a cancelled job; else it waits for ever.")
    ] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until running jobs have stopped.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0, help="Wait at most so long for running jobs.")
    ] = 60.0,
    url: Url = None,
    namespace: Namespace = None,
    debug: Debug = False,
) -> int:
    """Cancel jobs that wait, are scheduled or deferred, and stop those that run.

    Code 1 where a job has ended before, is unknown, or did not stop in time.
    """
    from envq.cli import jobs_cancel  # noqa: PLC0415 - rq and redis load only when the command runs

    return jobs_cancel.cancel_all(
        ids, url, namespace, enqueue_dependents=enqueue_dependents, patience_s=0.0 if no_wait else timeout
    )
