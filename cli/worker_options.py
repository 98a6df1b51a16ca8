"""The flags of ``envq worker`` that no other command has."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from envq.cli.options import LogLevel, flag
from envq.workers.lease import LONGEST_LEASE_S, SHORTEST_LEASE_S


class BuildFailure(StrEnum):
    """What a worker does when a variable cannot be built."""

    KEEP = "keep"
    EXIT = "exit"


class StartMethod(StrEnum):
    """How executors are started."""

    FORK = "fork"
    SPAWN = "spawn"
    FORKSERVER = "forkserver"


Queues = Annotated[
    list[str] | None,
    typer.Argument(metavar="QUEUES", help="Queues, most urgent first.", show_default="default"),
]
Queue = Annotated[
    list[str] | None,
    flag(
        "--queue -q",
        "A queue; may be repeated, or name several with commas.",
        metavar="NAME",
        envvar="ENVQ_QUEUES",
    ),
]
Scheduler = Annotated[bool, flag("--scheduler/--no-scheduler", "Enqueue scheduled jobs when they are due.")]
Method = Annotated[
    StartMethod | None,
    flag("--start-method", "How executors are started.", show_default="fork; spawn on macOS"),
]

Burst = Annotated[bool, flag("--burst/--no-burst -b", "End when the queues are empty.")]
MaxJobs = Annotated[int | None, flag("--max-jobs", "End after so many jobs.", metavar="N", min=1)]
MaxJobsPerChild = Annotated[
    int | None,
    flag("--max-jobs-per-child", "Replace an executor after so many jobs.", metavar="N", min=1),
]
MaxMemoryPerChild = Annotated[
    int | None,
    flag("--max-memory-per-child", "Replace an executor that grew so much since its build.", metavar="MIB", min=1),
]
MaxIdleTime = Annotated[
    float | None,
    flag("--max-idle-time", "End after so long without a job.", metavar="SECONDS", min=0),
]
Grace = Annotated[
    float | None,
    flag(
        "--grace",
        "After SIGTERM let jobs run so long; then they go back to their queues.",
        metavar="SECONDS",
        min=0,
        show_default="until they end",
    ),
]
KillGrace = Annotated[
    float,
    flag(
        "--kill-grace",
        "From asking a job to end (its timeout, a stop) to killing its process.",
        metavar="SECONDS",
        min=0,
    ),
]
LeaseSeconds = Annotated[
    float,
    flag(
        "--lease",
        "Jobs of a worker that vanished run again within so long.",
        metavar="SECONDS",
        min=SHORTEST_LEASE_S,
        max=LONGEST_LEASE_S,
    ),
]
WaitForServer = Annotated[
    float,
    flag(
        "--wait-for-server",
        "Wait so long for Redis before giving up with code 3.",
        metavar="SECONDS",
        min=0,
    ),
]

Paths = Annotated[
    list[str] | None,
    flag(
        "--path -P",
        "Where jobs' modules are, besides the working folder; may be repeated.",
        metavar="FOLDER",
    ),
]
Middleware = Annotated[
    list[str] | None,
    flag("--middleware", "Runs around every job; may be repeated, outermost first.", metavar="MODULE:NAME"),
]
ThroughRq = Annotated[
    bool,
    flag(
        "--through-rq/--no-through-rq",
        "Store every job by itself through RQ's own code: slower, for comparing.",
    ),
]
Isolate = Annotated[
    bool,
    flag(
        "--isolate/--no-isolate",
        "Run each job in a fork of its executor: it sees the variables as they are, and changes them for itself.",
    ),
]
CheckResets = Annotated[
    bool,
    flag(
        "--check-resets/--no-check-resets",
        "Report values that differ from the fresh ones after their reset.",
    ),
]
OnBuildFailure = Annotated[
    BuildFailure,
    flag("--build-failure", "When a variable cannot be built: keep running, or exit with code 5."),
]

Level = Annotated[LogLevel, flag("--log-level -l", "Least level that is logged.", case_sensitive=False)]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="The same as -l DEBUG.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="The same as -l WARNING.")]
LogFormat = Annotated[
    str,
    flag(
        "--log-format",
        "text, json, or a format for Python's logging with %(message)s in it.",
        metavar="text|json|FORMAT",
    ),
]
ConfigureLogging = Annotated[
    bool,
    flag("--configure-logging/--no-configure-logging", "Set up logging to stderr, or leave it alone."),
]
LabelOutput = Annotated[
    bool,
    flag(
        "--label-output/--no-label-output",
        "What jobs print comes as whole lines that name executor and job.",
    ),
]
