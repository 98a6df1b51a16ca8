"""What must be atomic in Redis: one Lua file and one typed function each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final, Literal, cast

from redis import Redis
from redis.client import Pipeline
from redis.commands.core import Script
from redis.exceptions import NoScriptError

from envq.store import keys as rq
from envq.store.keys import Keys

EVENTS_KEPT: Final = 10_000
CRASHES_ALLOWED: Final = 3  # a job whose process died goes back this often, then fails
WORKER_TTL_S: Final = 480  # RQ's worker_ttl plus its minute of grace
EXECUTOR_TTL_S: Final = 60
EXECUTION_TTL_S: Final = 3600  # outlives any pause of a supervisor's heartbeat

_FORGOTTEN: Final = -2  # of enqueue.lua

_INCLUDE: Final = re.compile(r"^--@include (\w+)$", re.MULTILINE)

Outcome = Literal["front", "settle", "gone"]
Why = Literal["crash", "timeout", "stopped", "handback"]


@cache
def source(name: str) -> str:
    """The text of a script; a line ``--@include NAME`` stands for the functions of another file."""
    text = (files("envq.store") / "lua" / f"{name}.lua").read_text("utf-8")
    return _INCLUDE.sub(lambda found: source(found[1]), text)


@cache
def digest(name: str) -> str:
    """By which a server that has seen the script knows it."""
    return sha1(source(name).encode(), usedforsecurity=False).hexdigest()


class _Script(Script):
    def __call__(self, keys: Sequence[Any] | None = None, args: Iterable[Any] | None = None, client: Any = None) -> Any:
        try:
            return cast(Any, super()).__call__(keys, args, client)
        except NoScriptError:  # flushed again between redis-py's two commands
            return cast(Any, client or self.registered_client).eval(
                self.script, len(keys or ()), *(keys or ()), *(args or ())
            )


def _script(connection: Redis, name: str) -> Script:
    """The script bound to a client; sent once by digest, in full only where the server does not know it."""
    return _Script(connection, source(name))


def enqueue_command(keys: Sequence[str], arguments: Sequence[Any]) -> tuple[Any, ...]:
    """The beginning that ``enqueue`` has in common for jobs of one kind; ``keys`` and arguments as the script says."""
    return ("EVALSHA", digest("enqueue"), len(keys), *keys, rq.JOB_PREFIX, *arguments)


class DeclarationsForgotten(Exception):
    """The store has forgotten what this driver declared; nothing was written."""


def enqueue(connection: Redis, command: Sequence[Any]) -> bool:
    """
    Write new jobs and put them on their queue, atomically; ids that exist already are left as they are.

    ``command`` begins with what ``enqueue_command`` gave. False where the code that the jobs need is not in Redis; then
    nothing was written. Raises DeclarationsForgotten.
    """
    send = cast(Any, connection).execute_command  # not redis-py's Script, which hashes the source each time
    try:
        new = send(*command)
    except NoScriptError:
        new = send("EVAL", source("enqueue"), *command[2:])
    if new == _FORGOTTEN:
        raise DeclarationsForgotten
    return new >= 0


def standing(pipeline: Pipeline, claims_key: str, job_id: str) -> tuple[bool, bool]:
    """Whether the claim on a job stands, and whether the job's record is there; for a pipeline that watches."""
    # In full, not by digest: a pipeline would first ask the server whether it knows the script.
    claimed, exists = cast(Any, pipeline).eval(source("standing"), 2, claims_key, rq.job(job_id), job_id)
    return bool(claimed), bool(exists)


def add_event(pipeline: Pipeline | Redis, keys: Keys, text: str) -> None:
    """Send an event along with other commands; never the reason why a transaction fails."""
    # In full, not by digest: inside a transaction an unknown digest could not be mended.
    cast(Any, pipeline).eval(source("event"), 1, keys.events, keys.events_channel, text, EVENTS_KEPT)


def release(  # noqa: PLR0913 - the parts of one script call
    connection: Redis,
    keys: Keys,
    executor: str,
    *,
    running: str,
    why: Why,
    detail: str = "",
    dead: bool,
) -> list[tuple[str, Outcome]]:
    """
    Settle every claim of an executor, atomically; each job's id and where it went.

    Args:
        running: the id of the job that ran, "" for none, "?" where only the record can tell
        detail: one line for the error of a job that ends here
        dead: also strike the executor off the list of the living
    """
    reply: list[tuple[bytes, bytes]] = _script(connection, "release")(
        keys=[keys.claims(executor), keys.settle, keys.executors, rq.worker_executions(executor), rq.QUEUES],
        args=[
            executor,
            running,
            why,
            detail,
            CRASHES_ALLOWED,
            rq.JOB_PREFIX,
            rq.QUEUE_PREFIX,
            rq.WIP_PREFIX,
            rq.EXECUTIONS_PREFIX,
            rq.EXECUTION_PREFIX,
            int(dead),
        ],
    )
    return [(job_id.decode(errors="replace"), outcome.decode()) for job_id, outcome in reply]  # type: ignore[misc]


def follow_up(connection: Redis, keys: Keys, job_id: str) -> bool:
    """Have the rest done of a job whose process died after its end was stored; False where it has not ended."""
    return bool(_script(connection, "followup")(keys=[rq.job(job_id), keys.settle], args=[job_id]))


@dataclass(frozen=True)
class Beat:
    """A sign of life for one executor and for what it runs ("" where it runs nothing)."""

    executor: str
    job_id: str
    execution_id: str
    now_text: str
    now: float
    silence_ms: int  # it may be silent for so long before it is taken for dead


def beat(connection: Redis, keys: Keys, beats: Sequence[Beat]) -> list[bool]:
    """Renew all executors of a supervisor in one round trip; False where one must register again."""
    script = _script(connection, "beat")
    pipeline: Pipeline = connection.pipeline(transaction=False)
    for sign in beats:
        script(
            keys=[
                keys.executors,
                keys.executor(sign.executor),
                rq.worker(sign.executor),
                rq.worker_executions(sign.executor),
                rq.execution(sign.job_id, sign.execution_id),
                rq.job(sign.job_id),
            ],
            args=[
                sign.executor,
                sign.now_text,
                sign.now,
                EXECUTOR_TTL_S,
                WORKER_TTL_S,
                EXECUTION_TTL_S,
                sign.silence_ms,
            ],
            client=pipeline,
        )
    return [bool(reply) for reply in pipeline.execute()]


def silent_executors(
    connection: Redis, keys: Keys, *, contact_ms: int = 2**53, usually_ms: int = 0, past_ms: int = 0
) -> list[str]:
    """
    Executors that are to be taken for dead, by the server's clock.

    Args:
        contact_ms: how long the asker has been in contact; who may be silent for longer than that is left out
        usually_ms: how long one may be silent that has not said so
        past_ms: their time has been over for so long
    """
    args = [past_ms, contact_ms, usually_ms, rq.worker("")]
    names: list[bytes] = _script(connection, "silent")(keys=[keys.executors], args=args)
    texts = (name.decode(errors="replace") for name in names)
    return [text for text in texts if "\ufffd" not in text]  # so no executor is called


@dataclass(frozen=True)
class DeclarationChange:
    """One change of the store: compare with ``expected``, then write."""

    name: str
    expected: bytes
    header: str
    new_digest: str
    old_digest: str
    blob: bytes
    token: str
    message: str
    old_code_ttl_s: int
    version_before: int
    starts_over: bool  # what its builds did so far counts no more


def change_declaration(connection: Redis, keys: Keys, change: DeclarationChange) -> str:
    """Write or (empty header) remove a declaration; the new generation, or "" if somebody was faster."""
    generation: bytes = _script(connection, "declare")(
        keys=[
            keys.declarations,
            keys.generation,
            keys.code(change.new_digest),
            keys.code(change.old_digest),
            keys.tries(change.name, change.version_before),
        ],
        args=[
            change.name,
            change.expected,
            change.header,
            change.blob,
            change.token,
            change.old_code_ttl_s,
            keys.env_channel,
            change.message,
            int(change.starts_over),
        ],
    )
    return generation.decode()


def renew_code(connection: Redis, keys: Keys, digest: str, ttl_s: int) -> bool:
    """Make a code blob live at least so long (-1: for ever); False where it is not there."""
    return bool(_script(connection, "renew")(keys=[keys.code(digest)], args=[ttl_s]))
