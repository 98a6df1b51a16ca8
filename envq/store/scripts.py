"""What must be atomic in Redis: one Lua file and one typed function each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
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

Outcome = Literal["front", "settle", "gone"]
Why = Literal["crash", "timeout", "stopped", "handback"]


@cache
def _source(name: str) -> str:
    return (files("envq.store") / "lua" / f"{name}.lua").read_text("utf-8")


def _script(connection: Redis, name: str) -> Script:
    """The script bound to a client; sent once by digest, in full only where the server does not know it."""
    return connection.register_script(_source(name))


@cache
def _digest(name: str) -> str:
    return hashlib.sha1(_source(name).encode(), usedforsecurity=False).hexdigest()


def enqueue_command(keys: Sequence[str], arguments: Sequence[Any]) -> tuple[Any, ...]:
    """The beginning that ``enqueue`` has in common for jobs of one kind; ``keys`` and arguments as the script says."""
    return ("EVALSHA", _digest("enqueue"), len(keys), *keys, rq.JOB_PREFIX, *arguments)


def enqueue(connection: Redis, command: Sequence[Any]) -> bool:
    """
    Write new jobs and put them on their queue, atomically; ids that exist already are left as they are.

    ``command`` begins with what ``enqueue_command`` gave. False where the code that the jobs need is not in Redis; then
    nothing was written.
    """
    send = cast(Any, connection).execute_command  # not redis-py's Script, which hashes the source each time
    try:
        return send(*command) >= 0
    except NoScriptError:
        connection.script_load(_source("enqueue"))
        return send(*command) >= 0


@dataclass(frozen=True)
class Claimed:
    """A job an executor took: its id and its hash as stored, field and value still bytes."""

    job_id: str
    fields: dict[bytes, bytes]

    @property
    def settle(self) -> bytes | None:
        """Why the job must be ended instead of run, as JSON; None for an ordinary job."""
        return self.fields.get(b"envq_settle")


@dataclass(frozen=True)
class ClaimReply:
    """What one claim brought: the declarations' generation, whether workers are suspended, and jobs."""

    generation: str
    suspended: bool
    jobs: list[Claimed]


def claim(  # noqa: PLR0913 - the parts of one script call
    connection: Redis,
    keys: Keys,
    executor: str,
    queue_names: Sequence[str],
    *,
    wanted: int = 1,
    held: Iterable[str] = (),
) -> ClaimReply:
    """
    Move up to ``wanted`` jobs into the executor's claims; one round trip, atomic.

    What already lies in the claims and is not in ``held`` (a reply was lost, or a blocking wait moved it)
    comes first. ``queue_names`` are RQ's names, most urgent first.
    """
    reply: list[Any] = _script(connection, "claim")(
        keys=[
            keys.claims(executor),
            keys.generation,
            rq.SUSPENDED,
            keys.settle,
            keys.executors,
            *(rq.queue(name) for name in queue_names),
        ],
        args=[executor, wanted, rq.JOB_PREFIX, rq.QUEUE_PREFIX, *held],
    )
    generation, suspended, *jobs = reply
    return ClaimReply(
        generation.decode(),
        bool(suspended),
        [Claimed(job_id.decode(), dict(zip(fields[::2], fields[1::2], strict=True))) for job_id, fields in jobs],
    )


@dataclass(frozen=True)
class Start:
    """One execution that is about to begin."""

    job_id: str
    execution_id: str
    executor: str
    queue_name: str
    now_text: str
    now: float
    event: str


def start(connection: Redis, keys: Keys, begun: Start) -> Literal[1, 0, -1]:
    """Record the start if the claim stands: 1 started, 0 claim gone, -1 job deleted or cancelled."""
    return _script(connection, "start")(
        keys=[
            keys.claims(begun.executor),
            rq.job(begun.job_id),
            rq.wip(begun.queue_name),
            rq.executions(begun.job_id),
            rq.execution(begun.job_id, begun.execution_id),
            rq.worker_executions(begun.executor),
            rq.worker(begun.executor),
            keys.events,
        ],
        args=[
            begun.job_id,
            begun.execution_id,
            begun.executor,
            begun.now_text,
            begun.now,
            EXECUTION_TTL_S,
            keys.events_channel,
            begun.event,
            EVENTS_KEPT,
        ],
    )


def standing(pipeline: Pipeline, claims_key: str, job_id: str) -> tuple[bool, bool]:
    """Whether the claim on a job stands, and whether the job's record is there; for a pipeline that watches."""
    # In full, not by digest: a pipeline would first ask the server whether it knows the script.
    claimed, exists = cast(Any, pipeline).eval(_source("standing"), 2, claims_key, rq.job(job_id), job_id)
    return bool(claimed), bool(exists)


def add_event(pipeline: Pipeline | Redis, keys: Keys, text: str) -> None:
    """Send an event along with other commands; never the reason why a transaction fails."""
    # In full, not by digest: inside a transaction an unknown digest could not be mended.
    cast(Any, pipeline).eval(_source("event"), 1, keys.events, keys.events_channel, text, EVENTS_KEPT)


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
    return [(job_id.decode(), outcome.decode()) for job_id, outcome in reply]  # type: ignore[misc]


@dataclass(frozen=True)
class Beat:
    """A sign of life for one executor and for what it runs ("" where it runs nothing)."""

    executor: str
    job_id: str
    execution_id: str
    now_text: str
    now: float


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
            args=[sign.executor, sign.now_text, sign.now, EXECUTOR_TTL_S, WORKER_TTL_S, EXECUTION_TTL_S],
            client=pipeline,
        )
    return [bool(reply) for reply in pipeline.execute()]


def silent_executors(connection: Redis, keys: Keys, *, for_ms: int) -> list[str]:
    """Executors whose last sign of life is older than that, by the server's clock."""
    names: list[bytes] = _script(connection, "silent")(keys=[keys.executors], args=[for_ms])
    return [name.decode() for name in names]


@dataclass(frozen=True)
class DeclarationChange:
    """One change of the store: compare with ``expected``, then write."""

    name: str
    expected: str
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
