"""From a URL to a Redis client, with errors that say what to do."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from envq.errors import ConfigurationError, ServerUnavailable
from envq.store import sentinel
from envq.store.driver_client import DriverClient, DriverPool
from envq.store.patience import Patience
from envq.store.replies import PROTOCOL, NotPrimary, Parser
from envq.store.trouble import REDIS_ERRORS, explain, is_about_the_data, safe_url

CONNECT_TIMEOUT_S: Final = 5.0
DRIVER_CONNECTIONS: Final = 64  # at most so many per process; more threads wait for one
# A network that swallows packets must not hold anybody for as long as TCP would. A URL may say otherwise.
DRIVER_ANSWER_S: Final = 5.0
WORKER_ANSWER_S: Final = 15.0
AT_ONCE_S: Final = 0.3  # for who waits at a terminal: a lost connection is made anew, a server that is away is told
OLDEST_SERVER: Final = (6, 2)

_SCHEMES = ("redis://", "rediss://", "unix://", *sentinel.SCHEMES)
ClientType = TypeVar("ClientType", bound=redis.Redis)

__all__ = ["REDIS_ERRORS", "explain", "is_about_the_data", "safe_url"]  # from trouble


def driver_client(url: str, retry_for_s: float = AT_ONCE_S) -> DriverClient:
    """
    A client for producers: bounded, thread-safe and fork-safe pool, for so long tries on a lost connection.

    Raises ConfigurationError for a URL that is none. Does no I/O.
    """
    options = {
        "retry": Patience(retry_for_s),
        "max_connections": DRIVER_CONNECTIONS,
        "timeout": CONNECT_TIMEOUT_S,
        "socket_timeout": DRIVER_ANSWER_S,
    }
    client = _client(url, DriverPool, options, DriverClient)
    client.url = url
    return client


def worker_client(url: str, answer_within_s: float = WORKER_ANSWER_S) -> redis.Redis:
    """
    A client that never repeats a command by itself: a lost reply is settled by asking. No I/O.

    Its pool is not bounded: a time limit that strikes while a job talks to Redis may cost it a connection.
    """
    options = {"retry": Retry(NoBackoff(), 0), "socket_timeout": answer_within_s}
    return _client(url, redis.ConnectionPool, options, redis.Redis)


@contextmanager
def at_most(client: redis.Redis, seconds: float) -> Generator[None]:
    """What this thread asks a driver's client inside the block is tried no longer than that; others are left as is."""
    if isinstance(client, DriverClient):
        with client.patience.at_most(seconds):
            yield
    else:
        yield


def _client(
    url: str, pool_class: type[redis.ConnectionPool], options: dict[str, Any], client_class: type[ClientType]
) -> ClientType:
    check_url(url)
    common = {
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "health_check_interval": 30,
        "parser_class": Parser,
    } | PROTOCOL
    if not url.startswith("unix"):
        common["socket_keepalive"] = True
    try:
        _check_database(url)
        plain, through = sentinel.through_sentinels(url) if url.startswith(sentinel.SCHEMES) else (url, {})
        pool = pool_class.from_url(plain, **common, **options, **through)
        cast(Any, pool.connection_class)(**pool.connection_kwargs)  # told now of an option that there is not
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"cannot use the Redis URL {safe_url(url)!r}: {error}") from None
    client = client_class(connection_pool=pool)
    check_client(client)
    return client


def check_url(url: str) -> None:
    """Raise ConfigurationError for text that is no Redis URL."""
    if not url.startswith(_SCHEMES):
        raise ConfigurationError(
            f"{safe_url(url)!r} is not a Redis URL; write redis://[:password@]host:port/number, "
            "rediss://... for TLS, unix://path, or redis+sentinel://host:port,host:port/number?master=NAME"
        )


def check_url_type(url: object) -> None:
    """Raise ConfigurationError for what is neither a URL nor None: other clients cannot be worked with."""
    if url is not None and not isinstance(url, str):
        kind = f"{type(url).__module__}.{type(url).__qualname__}"
        raise ConfigurationError(
            f"a Redis server is given by its URL or as a redis.Redis, not as a {kind}; "
            "asynchronous clients and clients of a Redis Cluster cannot be used"
        )


def _check_database(url: str) -> None:
    """Raise ValueError for a database that is no number, in place of which redis-py would take number 0."""
    parts = urlsplit(url)
    database = unquote(parts.path).replace("/", "")
    if parts.scheme != "unix" and database and not (database.isascii() and database.isdigit()):
        raise ValueError(f"the database is a number, not {database!r}")


def check_client(client: redis.Redis) -> None:
    """Refuse a client that decodes replies: RQ and envq store bytes."""
    if connection_options(client).get("decode_responses"):
        raise ConfigurationError(
            "the Redis connection has decode_responses=True, but jobs are bytes; connect without it"
        )


def connection_options(client: redis.Redis) -> dict[str, Any]:
    """The options each connection of the client is made with."""
    pool = cast(Any, client).connection_pool
    return cast(dict[str, Any], pool.connection_kwargs)


def database_number(client: redis.Redis) -> int:
    """The number of the database the client works in."""
    return int(connection_options(client).get("db") or 0)


@dataclass(frozen=True)
class ServerFacts:
    """What the start banner says of a server."""

    name: str
    version: str
    durability: str
    eviction: str = ""  # a policy that throws away what jobs need; "" for noeviction
    is_replica: bool = False

    @property
    def warnings(self) -> list[str]:
        """What an operator should change."""
        if not self.eviction:
            return []
        return [
            f"maxmemory-policy is {self.eviction}: at maxmemory Redis throws away jobs, results or declarations; "
            "set it to noeviction"
        ]

    @property
    def too_old(self) -> bool:
        """Whether the server lacks commands that envq needs."""
        return tuple(int(part) for part in self.version.split(".")[:2]) < OLDEST_SERVER


def server_facts(client: redis.Redis, url: str, source: str = "") -> ServerFacts:
    """Ask the server; raises ServerUnavailable if it cannot be reached, refuses us, is too old or one of a cluster."""
    try:
        info: dict[str, Any] = client.info()
    except RecursionError:  # what redis-py 5 ends in when a password is refused
        raise explain(redis.AuthenticationError("not authenticated"), url, source) from None
    except REDIS_ERRORS as error:
        raise explain(error, url, source) from None
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = str(info.get("valkey_version") or info.get("redis_version") or "0.0")
    policy = str(info.get("maxmemory_policy") or "noeviction")
    eviction = "" if policy == "noeviction" else policy
    facts = ServerFacts(name, version, _durability(client, info), eviction, info.get("role") == "slave")
    if facts.too_old:
        raise ServerUnavailable(f"{name} {version} at {safe_url(url)} is too old; envq needs Redis 6.2 or Valkey 7.2")
    if info.get("cluster_enabled"):
        raise ServerUnavailable(
            f"{name} at {safe_url(url)} is one of a cluster, which envq does not work with; "
            "give it a server of its own, with Sentinel where it has to be replicated"
        )
    return facts


def primary_facts(client: redis.Redis, url: str, source: str = "") -> ServerFacts:
    """The same for who is going to write; raises ServerUnavailable for a replica too."""
    facts = server_facts(client, url, source)
    if facts.is_replica:
        raise explain(NotPrimary(), url, source)
    return facts


def _durability(client: redis.Redis, info: dict[str, Any]) -> str:
    if info.get("aof_enabled"):
        policy = _config(client, "appendfsync") or "unknown"
        return f"append-only file, fsync {policy}"
    if _config(client, "save"):
        return "snapshots only: a crash of Redis loses what came after the last one"
    return "no persistence: a restart of Redis loses all jobs"


def _config(client: redis.Redis, name: str) -> str:
    try:
        return str(cast(dict[str, Any], client.config_get(name)).get(name, ""))
    except redis.RedisError:
        return ""  # CONFIG is often not allowed; the banner then says less
