"""``envq bench``: the signature only."""

from __future__ import annotations

from typing import Annotated

import typer

from envq.cli import signals
from envq.cli.benchmark.options import BenchOptions, VariableUse
from envq.cli.options import Debug, Json, LogLevel, Namespace, Url, flag

LONGEST_JOB_MS = 10_000


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="A few seconds, for a first impression.")] = False,
    executors: Annotated[
        int | None,
        typer.Option(
            "--executors", "-w", metavar="N", min=1, help="Drain with one executor, then with N.", show_default="2"
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            metavar="N",
            min=1,
            help="Drain so many, however long it takes.",
            show_default="what takes some seconds, at most 30000",
        ),
    ] = None,
    job_ms: Annotated[
        float,
        typer.Option("--job-ms", metavar="X", min=0, max=LONGEST_JOB_MS, help="Milliseconds that each job waits."),
    ] = 0.0,
    payload: Annotated[int, typer.Option("--payload", metavar="BYTES", min=0, help="Size of each job's argument.")] = 0,
    variable: Annotated[
        VariableUse | None,
        typer.Option(
            "--variable",
            case_sensitive=False,
            help="Each job reads a variable that nobody changes, or one that is reset or rebuilt after it.",
            show_default="none",
        ),
    ] = None,
    rtt_ms: Annotated[
        float, typer.Option("--rtt-ms", metavar="X", min=0, help="Delay each round trip to Redis by so much.")
    ] = 0.0,
    worker: Annotated[
        bool, typer.Option("--worker/--no-worker", help="Start a worker, or measure those that run.")
    ] = True,
    queue: Annotated[
        str | None,
        typer.Option("--queue", "-q", metavar="NAME", help="With --no-worker: the queue they listen on."),
    ] = None,
    log_level: Annotated[
        LogLevel, flag("--log-level -l", "Least level that its worker logs.", case_sensitive=False)
    ] = LogLevel.INFO,
    json: Json = False,
    url: Url = None,
    namespace: Namespace = None,
    debug: Debug = False,
) -> int:
    """Measure throughput and latency of this deployment, and delete all of it again.

    Its worker has a namespace and a queue of its own. With --no-worker the jobs go to the workers that listen
    on --queue in --namespace. With --json: "machine", "versions", "settings", "figures" and "warnings".
    """
    signals.end_at_once()
    from envq.cli.benchmark.run import run  # noqa: PLC0415 - rq and redis load only when the command runs

    return run(
        BenchOptions(
            url=url,
            namespace=namespace,
            executors=executors,
            worker=worker,
            queue=queue,
            jobs=jobs,
            quick=quick,
            job_ms=job_ms,
            payload=payload,
            variable=variable,
            rtt_ms=rtt_ms,
            log_level=log_level.value,
            json=json,
        )
    )
