"""From a URL to a Redis client, with errors that say what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit, urlunsplit

import redis
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.retry import Retry

from envq.errors import ConfigurationError, ServerUnavailable
from envq.store.driver_client import DriverClient, DriverPool

CONNECT_TIMEOUT_S: Final = 5.0
DRIVER_CONNECTIONS: Final = 64  # at most so many per process; more threads wait for one
DRIVER_RETRIES: Final = 2
OLDEST_SERVER: Final = (6, 2)

# What any command may raise while a server is away, restarts, fails over or has no memory left.
REDIS_ERRORS: Final = (redis.RedisError, ConnectionError, TimeoutError)

_SCHEMES = ("redis://", "rediss://", "unix://")


def driver_client(url: str) -> redis.Redis:
    """
    A client for producers: bounded, thread-safe and fork-safe pool; two quick retries on a lost connection.

    Raises ConfigurationError for a URL that is none. Does no I/O.
    """
    retry = Retry(ExponentialBackoff(cap=0.5, base=0.05), DRIVER_RETRIES)
    options = {"retry": retry, "max_connections": DRIVER_CONNECTIONS, "timeout": CONNECT_TIMEOUT_S}
    return _client(url, DriverPool, options, DriverClient)


def worker_client(url: str) -> redis.Redis:
    """
    A client that never repeats a command by itself: a lost reply is settled by asking. No I/O.

    Its pool is not bounded: a time limit that strikes while a job talks to Redis may cost it a connection.
    """
    return _client(url, redis.ConnectionPool, {"retry": Retry(NoBackoff(), 0)})


def _client(
    url: str,
    pool_class: type[redis.ConnectionPool],
    options: dict[str, Any],
    client_class: type[redis.Redis] = redis.Redis,
) -> redis.Redis:
    check_url(url)
    common = {"socket_connect_timeout": CONNECT_TIMEOUT_S, "health_check_interval": 30}
    try:
        _check_database(url)
        pool = pool_class.from_url(url, **common, **options)
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
            "rediss://... for TLS or unix://path"
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


def safe_url(url: str) -> str:
    """The URL without its password, for messages."""
    try:
        parts = urlsplit(url)
        if parts.password is None:
            return url
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))
    except ValueError:
        return "(a URL that cannot be read)"


def explain(error: redis.RedisError | OSError, url: str, source: str = "") -> ServerUnavailable:
    """
    One sentence for a server that does not answer or does not let us in.

    Args:
        source: where the URL came from, for somebody who has not been connected yet
    """
    shown = safe_url(url)
    text = str(error) or type(error).__name__
    if isinstance(error, redis.AuthenticationError) or "NOAUTH" in text or "WRONGPASS" in text:
        return ServerUnavailable(f"Redis at {shown} refuses the user name or password ({text}); check the URL")
    if isinstance(error, redis.ResponseError):
        return ServerUnavailable(f"Redis at {shown} refuses: {text}")
    lost = f"cannot reach Redis at {shown} ({text}); is it running, and is the URL right"
    if not source:
        return ServerUnavailable(f"{lost}?")
    return ServerUnavailable(f"{lost} (it comes from {source})? For trying envq, `envq dev` starts one")


def is_about_the_data(error: BaseException) -> bool:
    """Whether the server refused a command for what was sent or stored, so that trying again is of no use."""
    if type(error) not in (redis.ResponseError, redis.DataError):
        return False  # a lost connection, or a state of the server that redis-py knows by name
    code = str(error).partition(" ")[0]
    return not code.isupper() or code in ("ERR", "WRONGTYPE")  # others (MISCONF, NOREPLICAS, OOM) tell of the server


@dataclass(frozen=True)
class ServerFacts:
    """What the start banner says of a server."""

    name: str
    version: str
    durability: str

    @property
    def too_old(self) -> bool:
        """Whether the server lacks commands that envq needs."""
        return tuple(int(part) for part in self.version.split(".")[:2]) < OLDEST_SERVER


def server_facts(client: redis.Redis, url: str, source: str = "") -> ServerFacts:
    """Ask the server; raises ServerUnavailable if it cannot be reached, refuses us, or is too old."""
    try:
        info: dict[str, Any] = client.info()
    except RecursionError:  # what redis-py 5 ends in when a password is refused
        raise explain(redis.AuthenticationError("not authenticated"), url, source) from None
    except REDIS_ERRORS as error:
        raise explain(error, url, source) from None
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = str(info.get("valkey_version") or info.get("redis_version") or "0.0")
    facts = ServerFacts(name, version, _durability(client, info))
    if facts.too_old:
        raise ServerUnavailable(f"{name} {version} at {safe_url(url)} is too old; envq needs Redis 6.2 or Valkey 7.2")
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
