"""``envq worker``: from flags to a WorkerConfig, and the supervisor that runs it."""

from __future__ import annotations

import typer

from envq.cli import signals
from envq.cli import worker_options as flags
from envq.cli.options import Debug, Label, LogLevel, Namespace, Url, Workers


def worker(
    context: typer.Context,
    queues: flags.Queues = None,
    queue: flags.Queue = None,
    workers: Workers = 1,
    name: Label = None,
    url: Url = None,
    namespace: Namespace = None,
    scheduler: flags.Scheduler = True,
    start_method: flags.Method = None,
    burst: flags.Burst = False,
    max_jobs: flags.MaxJobs = None,
    max_jobs_per_child: flags.MaxJobsPerChild = None,
    max_memory_per_child: flags.MaxMemoryPerChild = None,
    max_idle_time: flags.MaxIdleTime = None,
    grace: flags.Grace = None,
    kill_grace: flags.KillGrace = 5.0,
    lease: flags.LeaseSeconds = 30.0,
    wait_for_server: flags.WaitForServer = 0.0,
    path: flags.Paths = None,
    middleware: flags.Middleware = None,
    check_resets: flags.CheckResets = False,
    through_rq: flags.ThroughRq = False,
    isolate: flags.Isolate = False,
    build_failure: flags.OnBuildFailure = flags.BuildFailure.KEEP,
    log_level: flags.Level = LogLevel.INFO,
    verbose: flags.Verbose = False,
    quiet: flags.Quiet = False,
    log_format: flags.LogFormat = "text",
    configure_logging: flags.ConfigureLogging = True,
    label_output: flags.LabelOutput = False,
    debug: Debug = False,
) -> int:
    """Run jobs from queues: a supervisor over one or more executors.

    SIGTERM or Ctrl-C stops warmly (running jobs end), a second one coldly (they go back to their queues).
    """
    signals.end_at_once()
    from envq.cli.run_worker import run  # noqa: PLC0415 - heavy: rq and the whole worker side

    return run(context)
