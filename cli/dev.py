"""``envq dev``: an embedded server and workers around a prompt, a script, or nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envq.cli import console, signals
from envq.cli.terminal import Terminal
from envq.driver.client import Client
from envq.embedded import EmbeddedServer
from envq.errors import ConfigurationError
from envq.local_workers import LocalConfig, workers_on


@dataclass(frozen=True)
class DevConfig:
    """What to start."""

    workers: int
    queues: tuple[str, ...]
    port: int | None
    data_dir: Path | None
    namespace: str
    worker_options: tuple[str, ...]


def run(config: DevConfig, script: Path | None, arguments: Sequence[str]) -> int:
    """Start all, do what is asked for, stop all; the exit code."""
    if script is not None and not script.is_file():
        raise ConfigurationError(f"{script} is not a file; name a Python script, or none for a prompt")
    signals.unwind_on_sigterm()
    try:
        return _run(config, script, arguments)
    except (KeyboardInterrupt, signals.Stopped):
        return 0


def _run(config: DevConfig, script: Path | None, arguments: Sequence[str]) -> int:
    terminal = Terminal()
    folders = (str(script.resolve().parent),) if script else ()
    local = LocalConfig(config.workers, config.queues, config.namespace, config.worker_options, terminal.show, folders)
    with EmbeddedServer(port=config.port, data_dir=config.data_dir) as server, workers_on(server.url, local) as client:
        if script is not None:
            return _run_script(client, [str(script), *arguments])
        if sys.stdin.isatty():
            return console.interact(client, terminal, config.workers)
        print(f"export ENVQ_URL={server.url}", flush=True)
        while True:
            signal.pause()


def _run_script(client: Client, command: Sequence[str]) -> int:
    """Run a driver against the deployment; its exit code."""
    settings = client.settings
    where = [f"ENVQ_URL={settings.url}", f"ENVQ_NAMESPACE={settings.namespace}"]
    process = subprocess.Popen(["env", *where, sys.executable, *command])
    try:
        code = process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    return code if code >= 0 else 128 - code
