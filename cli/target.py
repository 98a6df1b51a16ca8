"""The deployment a command works on: opened from --url and --namespace, with errors in one sentence."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import redis

from envq.code.signing import check_keys
from envq.settings import Settings
from envq.store.connection import database_number, driver_client, explain
from envq.store.declarations import DeclarationStore
from envq.store.executor_store import ExecutorStore
from envq.store.keys import Keys


@dataclass(frozen=True)
class Target:
    """A namespace on a server, for reading and for changing declarations; jobs are never unpickled."""

    settings: Settings
    connection: redis.Redis
    keys: Keys
    declarations: DeclarationStore
    executors: ExecutorStore


def settings_of(url: str | None, namespace: str | None) -> Settings:
    """The settings with these flags, which the command line also takes from the configuration file."""
    settings = Settings.load(url=url, namespace=namespace)
    given = url is not None and settings.url_source == "the argument"
    return replace(settings, url_source="--url or the configuration file") if given else settings


@contextmanager
def opened(url: str | None, namespace: str | None) -> Generator[Target]:
    """The deployment; an error of the connection inside the block becomes ServerUnavailable."""
    settings = settings_of(url, namespace)
    check_keys()
    connection = driver_client(settings.url)
    keys = Keys(settings.namespace, database_number(connection))
    target = Target(settings, connection, keys, DeclarationStore(connection, keys), ExecutorStore(connection, keys))
    try:
        yield target
    except (redis.RedisError, ConnectionError, TimeoutError) as error:
        raise explain(error, settings.url, settings.url_source) from None
    finally:
        connection.close()
