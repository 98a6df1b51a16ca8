"""One deployment as this process sees it: the connection and the stores on it, and which is the default."""

from __future__ import annotations

import os
import threading
from typing import Any, Literal

import redis

from envq.code.signing import check_keys
from envq.driver.inline import InlineRuns
from envq.driver.scope import DriverMode, DriverScope
from envq.environment import bind, env
from envq.errors import ConfigurationError
from envq.settings import Settings, valid_namespace
from envq.store.code_store import CodeStore
from envq.store.connection import (
    AT_ONCE_S,
    at_most,
    check_client,
    check_url_type,
    connection_options,
    database_number,
    driver_client,
    primary_facts,
)
from envq.store.declarations import DeclarationStore
from envq.store.driver_client import DriverPool
from envq.store.executor_store import ExecutorStore
from envq.store.generation import turned_back
from envq.store.keys import Keys


class Client:
    """
    A namespace on a Redis server. Making one does no I/O; it may be shared by threads and inherited by forks.

    Args:
        url: a URL, a redis.Redis whose pool is used as it is, or None for ``ENVQ_URL``, ``REDIS_URL``, localhost
        namespace: None for ``ENVQ_NAMESPACE`` or "default"
        retry_for: seconds for which a call tries to reach Redis before it raises; None for ``ENVQ_RETRY_FOR`` or 5; for
            a redis.Redis its own retries count

    Attributes:
        jobs_here: None; without a server the jobs by id, which run in this process
        inline: the variables of jobs that run in this process

    Raises ConfigurationError for a URL, namespace or connection that cannot be used.
    """

    jobs_here: dict[str, Any] | None = None
    _made = 0  # connections, when it was last looked

    def __init__(
        self, url: str | redis.Redis | None = None, namespace: str | None = None, retry_for: float | None = None
    ) -> None:
        if isinstance(url, redis.Redis):
            check_client(url)
            self.settings = Settings.load(url=_url_of(url), namespace=namespace)
            self.connection = url
        else:
            check_url_type(url)
            self.settings = Settings.load(url=url, namespace=namespace, retry_for_s=retry_for)
            self.connection = driver_client(self.settings.url, self.settings.retry_for_s)
        self.keys = Keys(valid_namespace(self.settings.namespace), database_number(self.connection))
        self.declarations = DeclarationStore(self.connection, self.keys)
        check_keys()
        self.code = CodeStore(self.connection, self.keys)
        self.executors = ExecutorStore(self.connection, self.keys)
        self.scope = driver_scope
        self.inline = InlineRuns(lambda: self.scope.recipes(self))

    def check(self) -> None:
        """Ask the server; raises ServerUnavailable if it cannot be reached, refuses us or is too old."""
        with at_most(self.connection, AT_ONCE_S):  # most often it is the URL that is wrong
            primary_facts(self.connection, self.settings.url, self.settings.url_source)

    def look_again(self) -> None:
        """
        Publish what this process has declared once more, if the store has lost it.

        Asks only where a connection was made anew since it was last asked, as after a restart of Redis.
        """
        known = self.scope.generation_of(self)
        if not known or not isinstance(pool := self.connection.connection_pool, DriverPool):
            return
        pool.freshen()
        if pool.made != self._made:
            self._made = pool.made
            if turned_back(known, self.declarations.generation()):
                self.scope.publish_again(self)

    def close(self) -> None:
        """Close its connections, and tear down the variables of jobs that ran in this process."""
        self.inline.close()
        self.connection.connection_pool.disconnect()

    def __repr__(self) -> str:
        return f"Client({_url_of(self.connection)!r}, namespace={self.settings.namespace!r})"


def connect(
    url: str | redis.Redis | None = None,
    *,
    namespace: str | None = None,
    driver: Literal["eager", "lazy", "never"] | None = None,
    retry_for: float | None = None,
) -> Client:
    """
    Connect now, make this the default client of the process, and publish what was declared before, in order.

    Args:
        url: a URL or a redis.Redis; None: ``ENVQ_URL``, ``REDIS_URL``, redis://localhost:6379/0
        namespace: None: ``ENVQ_NAMESPACE``, "default"
        driver: when this process builds copies of variables declared with driver="auto"; None: code in
            ``__main__`` at its publication, importable code at the first read
        retry_for: seconds for which later calls try to reach Redis before they raise ServerUnavailable; None:
            ``ENVQ_RETRY_FOR``, 5. This call raises at once

    Raises ServerUnavailable, and what a pending declaration's initializer raises; that one and the later
    ones then stay unpublished.
    """
    if driver not in (None, "eager", "lazy", "never"):  # pyright: ignore[reportUnnecessaryContains] - untyped callers
        raise ConfigurationError(f"driver={driver!r:.80} must be 'eager', 'lazy' or 'never'")
    client = Client(url, namespace, retry_for)
    client.check()
    driver_scope.mode = driver or "auto"
    use(client)
    return client


def default_client() -> Client:
    """
    The client of this process; connects at its first use.

    What was declared and is not published yet is published before this returns, so that no job enqueued
    through it can overtake a declaration.
    """
    client = _default.client
    if client is None:
        client = _first_client()
    client.scope.connected(client)
    return client


def use(client: Client) -> None:
    """Make it the default client and publish what is pending, without checking the server."""
    with _default.lock:
        _default.client = client
    client.scope.connected(client)


def use_if_first(client: Client) -> None:
    """The first deployment that a process works with is its default until :func:`connect` names another."""
    with _default.lock:
        _default.client = _default.client or client
        default = _default.client
    default.scope.connected(default)


def client_for(connection: redis.Redis) -> Client:
    """A client on this connection: the default one if it is that, with its namespace."""
    default = _default.client
    return default if default is not None and default.connection is connection else Client(connection)


def swap_default(client: Client | None) -> Client | None:
    """Replace the default client, publishing nothing; returns the one before. None: connect at the next use."""
    with _default.lock:
        previous, _default.client = _default.client, client
    return previous


class _Default:
    """The default client of the process and the lock under which it is made."""

    def __init__(self) -> None:
        self.client: Client | None = None
        self.lock = threading.Lock()


def _first_client() -> Client:
    with _default.lock:
        if _default.client is None:
            client = Client()
            client.check()
            _default.client = client
        return _default.client


def _url_of(client: redis.Redis) -> str:
    options = connection_options(client)
    number = options.get("db") or 0
    if path := options.get("path"):
        return f"unix://{path}?db={number}"
    return f"redis://{options.get('host', 'localhost')}:{options.get('port', 6379)}/{number}"


def _after_fork() -> None:
    # Another thread of the parent may have held it at the fork; nobody would release it here.
    _default.lock = threading.Lock()
    driver_scope.after_fork()
    if _default.client is not None:
        _default.client.inline.after_fork()


_default = _Default()
driver_scope = DriverScope(default_client)
bind(driver_scope)
os.register_at_fork(after_in_child=_after_fork)

__all__ = [
    "Client",
    "DriverMode",
    "connect",
    "default_client",
    "driver_scope",
    "env",
    "swap_default",
    "use",
    "use_if_first",
]
