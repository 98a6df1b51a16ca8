"""What ``envq worker`` does with its flags: check them, greet, and run the supervisor."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from importlib.metadata import version
from typing import Any, Final, cast

import redis
import typer

from envq.cli.render import Banner, banner
from envq.cli.worker_config import worker_config
from envq.code.signing import check_keys, signed
from envq.errors import ConfigurationError, ServerUnavailable
from envq.store.connection import ServerFacts, database_number, explain, primary_facts, safe_url, worker_client
from envq.store.declarations import DeclarationStore
from envq.store.key_types import check_key_types
from envq.store.keys import Keys
from envq.store.records import Declaration
from envq.workers import logs
from envq.workers.config import WorkerConfig
from envq.workers.outage import Outage
from envq.workers.supervision.supervisor import Supervisor

log = logging.getLogger("envq.worker")

SERVER_RETRY_S: Final = 0.25
# The supervisor itself never imports user code, so what --middleware names is tried in a process of its own.
_TRY_MIDDLEWARE: Final = """
import sys
split = sys.argv.index("--")
sys.path[:0] = sys.argv[1:split]
from envq.workers.middleware import load
for path in sys.argv[split + 1:]:
    load(path)
"""


def run(context: typer.Context) -> int:
    """Run a worker as the flags say; returns its exit code."""
    config = worker_config(context)
    check_keys()
    sys.path[:0] = config.import_paths
    check_middleware(config)
    if config.configure_logging:
        configure_logging(config)
    facts = reach_server(config, context.params["wait_for_server"])
    for line in banner(facts):
        log.info("%s", line)
    for warning in facts.warnings:
        log.warning("%s", warning)
    return Supervisor(config).run()


def configure_logging(config: WorkerConfig) -> None:
    """Set up logging; ConfigurationError for a format that logging cannot use."""
    try:
        logs.configure(config.log_level, config.log_format)
    except ValueError as error:
        raise ConfigurationError(
            f"--log-format {config.log_format!r}: {error}; use text, json or a format with %(message)s in it"
        ) from None


def check_middleware(config: WorkerConfig) -> None:
    """Import the middleware as an executor will; ConfigurationError says why it cannot be used."""
    if not config.middleware:
        return
    command = [sys.executable, "-P", "-c", _TRY_MIDDLEWARE, *config.import_paths, "--", *config.middleware]
    tried = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if tried.returncode:
        reason = tried.stderr.strip().rpartition("\n")[2].removeprefix("envq.errors.ConfigurationError: ")
        raise ConfigurationError(f"--middleware {', '.join(config.middleware)}: {reason}; correct the flag or --path")


def reach_server(config: WorkerConfig, patience_s: float) -> Banner:
    """What there is to say of it; asks again until it answers or patience is over, then raises ServerUnavailable."""
    settings, client = config.settings, worker_client(config.settings.url)
    deadline, outage = time.monotonic() + patience_s, Outage()
    try:
        while True:
            try:
                facts = primary_facts(client, settings.url, settings.url_source)
                return _banner(config, facts, _variables(config, client))
            except ServerUnavailable as error:
                if time.monotonic() >= deadline:
                    raise
                outage.tell("waiting for Redis: %s", error)
                time.sleep(SERVER_RETRY_S)
    finally:
        # Closing the client would leave its pool open, and each executor would inherit the socket.
        cast(Any, client).connection_pool.disconnect()


def _banner(config: WorkerConfig, facts: ServerFacts, variables: list[Declaration]) -> Banner:
    return Banner(
        version=version("envq"),
        label=config.label,
        server=f"{facts.name} {facts.version}",
        durability=facts.durability,
        url=safe_url(config.settings.url),
        namespace=config.settings.namespace,
        queues=config.queues,
        executors=config.executors,
        scheduler=config.scheduler,
        burst=config.burst,
        signed=signed(),
        variables=variables,
        warnings=facts.warnings,
    )


def _variables(config: WorkerConfig, client: redis.Redis) -> list[Declaration]:
    """What this worker is going to build at its start."""
    keys = Keys(config.settings.namespace, database_number(client))
    try:
        check_key_types(client, keys)
        declared = DeclarationStore(client, keys).snapshot().declarations.values()
    except (redis.RedisError, OSError) as error:
        raise explain(error, config.settings.url, config.settings.url_source) from None
    return [each for each in declared if each.queues is None or set(each.queues) & set(config.queues)]
