"""``envq config``: the settings a worker would run with, and the source of each."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any, cast

import typer

from envq.cli import config_file
from envq.cli.mistakes import variables_of
from envq.cli.printing import print_json, print_table
from envq.cli.worker_config import worker_config
from envq.settings import Settings
from envq.store.connection import safe_url

_NOT_SHOWN = ("help", "debug", "verbose", "quiet", "queues")
_TOGETHER = {"queue": ("queue", "queues"), "log_level": ("log_level", "verbose", "quiet")}  # one setting, several flags


def show(context: typer.Context, *, as_json: bool) -> int:
    """Parse the rest of the command line as ``envq worker`` would, and print what comes out."""
    root = cast(Any, context.parent)
    worker = root.command.commands["worker"].make_context("worker", list(context.args), parent=root)
    found = config_file.find(Path.cwd())
    rows = settings(worker, str(found.path) if found else "")
    if as_json:
        print_json([dict(zip(("name", "value", "source"), row, strict=True)) for row in rows])
    else:
        texts = [(name, _text(value), source) for name, value, source in rows]
        print_table("Settings", ("SETTING", "VALUE", "SOURCE"), texts, empty="")
    return 0


def settings(worker: Any, file: str) -> list[tuple[str, Any, str]]:
    """Name, value and source of each flag of a parsed ``envq worker``."""
    config = worker_config(worker)
    effective = {
        "queue": list(config.queues),
        "name": config.label,
        "url": safe_url(config.settings.url),
        "namespace": config.settings.namespace,
        "path": list(config.import_paths),
        "log-level": config.log_level,
        "start-method": config.start_method,
    }
    rows: list[tuple[str, Any, str]] = []
    for parameter in worker.command.params:
        name = parameter.opts[0].removeprefix("--")
        if name not in _NOT_SHOWN:
            value = effective.get(name, _plain(worker.params[parameter.name]))
            rows.append((name, value, _source(worker, parameter, file)))
    return rows


def _source(worker: Any, parameter: Any, file: str) -> str:
    kinds = {worker.get_parameter_source(name).name for name in _TOGETHER.get(parameter.name, (parameter.name,))}
    if "COMMANDLINE" in kinds:
        return "command line"
    if "ENVIRONMENT" in kinds:
        return Settings.load().url_source if parameter.name == "url" else variables_of(parameter)
    return file if "DEFAULT_MAP" in kinds else "default"


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _text(value: Any) -> str:
    if value is None:
        return ""
    return ", ".join(map(str, cast(list[Any], value))) if isinstance(value, list | tuple) else str(value)
