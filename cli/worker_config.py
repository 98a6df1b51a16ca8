"""From the flags of ``envq worker``, wherever their values come from, to a WorkerConfig."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from envq.cli.target import settings_of
from envq.errors import ConfigurationError
from envq.names import valid_queue_name
from envq.workers.config import WorkerConfig
from envq.workers.lease import Lease


def worker_config(context: Any) -> WorkerConfig:
    """The configuration that a parsed ``envq worker`` describes; raises ConfigurationError."""
    flags: Mapping[str, Any] = context.params
    config = WorkerConfig(
        settings=settings_of(flags["url"], flags["namespace"]),
        queues=queue_names(context),
        executors=flags["workers"],
        burst=flags["burst"],
        scheduler=flags["scheduler"],
        max_jobs=flags["max_jobs"],
        max_jobs_per_child=flags["max_jobs_per_child"],
        max_memory_per_child_mib=flags["max_memory_per_child"],
        max_idle_s=flags["max_idle_time"],
        grace_s=flags["grace"],
        kill_grace_s=flags["kill_grace"],
        lease=Lease(flags["lease"]),
        build_failure=cast(Literal["keep", "exit"], str(flags["build_failure"])),
        check_resets=flags["check_resets"],
        through_rq=flags["through_rq"],
        isolate=flags["isolate"],
        label_output=flags["label_output"],
        middleware=tuple(flags["middleware"] or ()),
        import_paths=import_paths(flags["path"]),
        log_level=log_level(flags),
        log_format=flags["log_format"],
        configure_logging=flags["configure_logging"],
        **_if_given(label=flags["name"], start_method=flags["start_method"]),
    )
    _check_label(config.label)
    return config


def _if_given(**values: Any) -> dict[str, Any]:
    return {name: str(value) for name, value in values.items() if value is not None}


def _check_label(label: str) -> None:
    if not label or any(sign.isspace() or sign in ":/" for sign in label):
        raise ConfigurationError(f"--name {label!r} may hold neither spaces nor the signs : and /; choose another")


def queue_names(context: Any) -> tuple[str, ...]:
    """Queues in order, each once; those typed without a flag put aside what the environment or a file says."""
    positional: Sequence[str] = context.params["queues"] or ()
    flagged: Sequence[str] = context.params["queue"] or ()
    if positional and context.get_parameter_source("queue").name != "COMMANDLINE":
        flagged = ()
    names = [part.strip() for entry in (*positional, *flagged) for part in entry.split(",")]
    if not any(names) and any(context.get_parameter_source(each).name == "COMMANDLINE" for each in ("queues", "queue")):
        raise ConfigurationError("the name of a queue is empty; leave it out for the queue 'default'")
    return tuple(dict.fromkeys(valid_queue_name(name) for name in names if name)) or ("default",)


def import_paths(paths: Sequence[str] | None) -> tuple[str, ...]:
    """Folders for ``sys.path``, in order: those given, then the working folder."""
    folders = [Path(path).expanduser().resolve() for path in paths or ()]
    for folder in folders:
        if not folder.is_dir():
            raise ConfigurationError(f"--path {folder} is not a folder; create it or correct the flag")
    return tuple(dict.fromkeys(str(folder) for folder in (*folders, Path.cwd())))


def log_level(flags: Mapping[str, Any]) -> str:
    """The level's name; -v and --quiet go before -l."""
    if flags["verbose"]:
        return "DEBUG"
    return "WARNING" if flags["quiet"] else str(flags["log_level"]).upper()
