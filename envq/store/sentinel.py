"""Sentinel: connections that ask anew, each time they are made, which server is the primary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

SCHEMES: Final = ("redis+sentinel://", "rediss+sentinel://")
DEFAULT_PORT: Final = 26379
# The next sentinel may know.
_ONE_SHORT_TRY: Final = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0, "retry": Retry(NoBackoff(), 0)}


class NoPrimary(redis.ConnectionError):
    """The sentinels do not say which server is the primary; the text is a sentence that names them."""


@dataclass(frozen=True)
class Sentinels:
    """Where the sentinels are, and which primary they are asked about; ``options`` as redis.Redis takes them."""

    name: str
    addresses: tuple[tuple[str, int], ...]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def primary(self) -> tuple[str, int]:
        """Host and port of the primary; raises NoPrimary."""
        options = {**_ONE_SHORT_TRY, **self.options}
        known, refused = set[str](), list[str]()
        with Sentinel(self.addresses, sentinel_kwargs=options) as sentinel:
            for each in cast("list[Any]", cast(Any, sentinel).sentinels):
                try:
                    primaries = cast("dict[str, Any]", each.sentinel_masters())
                except (redis.RedisError, OSError) as error:
                    refused.append(str(error))
                    continue
                state = primaries.get(self.name)
                if state and cast(Any, sentinel).check_master_state(state, self.name):
                    return state["ip"], state["port"]
                known.update(primaries)
        raise NoPrimary(self._why_not(known, refused))

    def _why_not(self, known: set[str], refused: list[str]) -> str:
        where = ", ".join(f"{host}:{port}" for host, port in self.addresses)
        if len(refused) == len(self.addresses):
            return f"no sentinel answers at {where} ({refused[0]}); are they running, and is the URL right?"
        if self.name not in known:
            names = ", ".join(sorted(known)) or "none"
            return (
                f"the sentinels at {where} know no primary {self.name!r} (known: {names}); correct master= in the URL"
            )
        return f"the sentinels at {where} have no primary for {self.name!r} at the moment; it is tried again"


class _ThroughSentinels:
    """For a connection class: the address is looked up when it connects."""

    def __init__(self, *, sentinels: Sentinels, **options: Any) -> None:
        self._sentinels = sentinels
        super().__init__(**options)

    def _connect(self) -> Any:
        connection = cast(Any, super())
        cast(Any, self).host, cast(Any, self).port = self._sentinels.primary()
        return connection._connect()


class SentinelConnection(_ThroughSentinels, redis.Connection):
    """To the primary of the moment."""


class SentinelSSLConnection(_ThroughSentinels, redis.SSLConnection):
    """The same, by TLS."""


def through_sentinels(url: str) -> tuple[str, dict[str, Any]]:
    """
    A Sentinel URL as one that redis-py reads, and the options that lead its connections through the sentinels.

    ``redis+sentinel://[user:password@]host:port,host:port/number?master=NAME``; ``sentinel_username`` and
    ``sentinel_password`` are the sentinels' own, what else stands behind the ? is for the server and, where it is
    about TLS, for both. Raises ValueError.
    """
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    addresses = tuple(_address(each) for each in hosts.split(","))
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    name = query.pop("master", "")
    if not name:
        raise ValueError("it names no primary; add ?master=NAME, as the sentinels call it")
    encrypted = parts.scheme.startswith("rediss")
    own = {key.removeprefix("sentinel_"): query.pop(key) for key in list(query) if key.startswith("sentinel_")}
    if unknown := sorted(own.keys() - {"username", "password"}):
        raise ValueError(f"there is no option sentinel_{unknown[0]}; there are sentinel_username and sentinel_password")
    own |= {key: value for key, value in query.items() if key.startswith("ssl_")}
    if encrypted:
        own["ssl"] = cast(Any, True)
    plain = parts._replace(
        scheme="rediss" if encrypted else "redis", netloc=f"{login}{at}sentinel", query=urlencode(query)
    )
    connection_class = SentinelSSLConnection if encrypted else SentinelConnection
    sentinels = Sentinels(name, addresses, cast("dict[str, Any]", own))
    return urlunsplit(plain), {"connection_class": connection_class, "sentinels": sentinels}


def _address(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("a sentinel is written host:port, several with commas between them")
    return parts.hostname, parts.port or DEFAULT_PORT
