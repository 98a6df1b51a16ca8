"""What a server that is away, or refuses, is told as: one sentence that says what to do."""

from __future__ import annotations

import re
from typing import Final, cast
from urllib.parse import urlsplit, urlunsplit

import redis
from redis.exceptions import NoPermissionError

from envq.errors import ServerUnavailable
from envq.store.replies import NotPrimary, ServerBusy
from envq.store.sentinel import NoPrimary

# What any command may raise while a server is away, restarts, fails over or has no memory left.
REDIS_ERRORS: Final = (redis.RedisError, ConnectionError, TimeoutError)

# redis-py puts the command in front where it was one of a pipeline.
_STATE: Final = re.compile(r"(?:^|caused error: )(OOM|MISCONF|NOREPLICAS) ")
_GIVEN_UP: Final = "; given up after "
_RIGHT: Final = "is the URL right"
_NO_CERTIFICATE: Final = ("EOF occurred in violation of protocol", "alert certificate required", "alert handshake")
_PASSWORDS: Final = re.compile(r"(password=)[^&]*", re.IGNORECASE)


class ServerLost(ServerUnavailable, redis.ConnectionError):
    """A driver's command was given up: the server could not be reached for as long as a driver tries."""


class ServerRefuses(ServerUnavailable, redis.ResponseError):
    """A driver's command was refused for a state of the server, or a missing right; nothing was done."""


def safe_url(url: str) -> str:
    """The URL without its passwords, for messages."""
    try:
        parts = urlsplit(url)
        query = _PASSWORDS.sub(r"\1***", parts.query)
        if parts.password is None:
            return urlunsplit(parts._replace(query=query)) if query != parts.query else url
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}", query=query))
    except ValueError:
        return "(a URL that cannot be read)"


def explain(error: redis.RedisError | OSError, url: str, source: str = "") -> ServerUnavailable:
    """
    One sentence for a server that does not answer or does not let us in.

    Args:
        source: where the URL came from, for somebody who has not been connected yet
    """
    if isinstance(error, ServerUnavailable):  # a driver's client has said it already
        return ServerUnavailable(_with_source(str(error).partition(_GIVEN_UP)[0] + "?", source))
    return ServerUnavailable(_with_source(_sentence(error, safe_url(url)), source))


def for_driver(error: redis.RedisError | OSError, url: str, retried_s: float) -> ServerUnavailable | None:
    """The same for a command that a driver gives up; None for an error that says what is wrong with the command."""
    if isinstance(error, ServerUnavailable):
        return error
    if isinstance(error, redis.ResponseError):
        return ServerRefuses(_sentence(error, safe_url(url))) if _refusal(error) else None
    if isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError):
        tried = f"{_GIVEN_UP}{retried_s:g} s" if retried_s else ""
        return ServerLost(f"{_sentence(error, safe_url(url)).removesuffix('?')}{tried}")
    return None


def is_about_the_data(error: BaseException) -> bool:
    """Whether the server refused a command for what was sent or stored, so that trying again is of no use."""
    if type(error) not in (redis.ResponseError, redis.DataError):
        return False  # a lost connection, or a state of the server that redis-py knows by name
    if _refusal(cast(redis.ResponseError, error)):
        return False
    code = str(error).partition(" ")[0]
    return not code.isupper() or code in ("ERR", "WRONGTYPE")  # others (MISCONF, NOREPLICAS, OOM) tell of the server


def _sentence(error: redis.RedisError | OSError, shown: str) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, NoPrimary):
        return text
    if isinstance(error, redis.AuthenticationError) or "NOAUTH" in text or "WRONGPASS" in text:
        return f"Redis at {shown} refuses the user name or password ({text}); check the URL"
    if state := _state(error, text):
        return f"Redis at {shown} {state}"
    if isinstance(error, redis.ResponseError):
        return f"Redis at {shown} {_refusal(error) or f'refuses: {text}'}"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return (
            f"cannot talk to Redis at {shown}: its certificate is not accepted ({text}); name the authority that "
            "signed it in the URL, ssl_ca_certs=FILE, and the host as the certificate does"
        )
    lost = f"cannot reach Redis at {shown} ({text})"
    if any(each in text for each in _NO_CERTIFICATE):
        lost += "; if it asks for a certificate, name yours in the URL, ssl_certfile=FILE and ssl_keyfile=FILE"
    return f"{lost}; is it running, and {_RIGHT}?"


def _with_source(text: str, source: str) -> str:
    """For somebody who has not been connected yet: where the URL came from."""
    if not text.endswith(f"{_RIGHT}?"):
        return text.removesuffix("?")
    if not source:
        return text
    return f"{text[:-1]} (it comes from {source})? For trying envq, `envq dev` starts one"


def _state(error: redis.RedisError | OSError, text: str) -> str:
    """What is the matter with a server that answers, and will do its work later."""
    if isinstance(error, NotPrimary):
        return (
            "is a replica, which takes no jobs: give the URL of the primary, or of the sentinels "
            "(redis+sentinel://); after a failover it is tried again"
        )
    if isinstance(error, ServerBusy):
        return "is busy with a script that takes long (BUSY); it is tried again, and SCRIPT KILL ends a script"
    if isinstance(error, redis.BusyLoadingError):
        return "loads its data from disk (LOADING); it is tried again"
    if "connections are in use" in text:
        return f"is not asked: {text} by other threads of this process; raise max_connections in the URL"
    if "max number of clients reached" in text:
        return "takes no more connections (max number of clients reached); raise maxclients, or close some"
    return ""


def _refusal(error: redis.ResponseError) -> str:
    """Why a server refuses commands that are right; "" where the command is at fault."""
    text = str(error)
    state = _STATE.search(text)
    code = state[1] if state else ""
    if isinstance(error, redis.OutOfMemoryError) or code == "OOM":
        return "has no memory left (maxmemory is reached); raise maxmemory, or let workers drain the queues"
    if code == "MISCONF":
        return f"refuses to write, because it cannot save to its disk ({text}); see its log, and free the disk"
    if code == "NOREPLICAS":
        return f"refuses to write ({text}); min-replicas-to-write asks for replicas that are not there"
    if isinstance(error, NoPermissionError) or "executing the script can't" in text:
        return f"does not let this user do that ({text}); see the ACL of the user in the URL"
    if text.startswith("ACL failure in script"):
        return f"does not let this user do that ({text}); see the ACL of the user in the URL"
    return ""
