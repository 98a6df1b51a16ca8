"""The round trip of an executor: what is done is stored, what is next is claimed.

Two scripts, `finish.lua` and `claim.lua`, sent together; each is atomic, and safe to repeat after a lost reply.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final, NamedTuple, cast

import msgpack  # pyright: ignore[reportMissingTypeStubs]
from redis import Redis

from envq.clock import iso_of
from envq.store import keys as rq
from envq.store.keys import Keys
from envq.store.scripts import EVENTS_KEPT, digest, source

log = logging.getLogger("envq.job")

BATCH: Final = 64  # jobs
BATCH_BYTES: Final = 256 * 1024  # of payloads, or of ends that are not stored
USUAL_SILENCE_S: Final = 18.0  # of an executor whose worker says nothing else

_PREFIXES: Final = (rq.JOB_PREFIX, rq.QUEUE_PREFIX, rq.WIP_PREFIX, rq.EXECUTIONS_PREFIX, rq.EXECUTION_PREFIX)
_FINISH_PREFIXES: Final = (
    rq.JOB_PREFIX,
    rq.RESULTS_PREFIX,
    rq.WIP_PREFIX,
    rq.FINISHED_PREFIX,
    rq.EXECUTIONS_PREFIX,
    rq.EXECUTION_PREFIX,
    rq.DEPENDENCIES_PREFIX,
)


class ScriptCall(NamedTuple):
    """One script with its keys and arguments."""

    name: str
    keys: Sequence[str]
    arguments: Sequence[Any]

    def by_digest(self) -> tuple[Any, ...]:
        """The command for a server that knows the script."""
        return ("EVALSHA", digest(self.name), len(self.keys), *self.keys, *self.arguments)

    def in_full(self) -> tuple[Any, ...]:
        """The command for any server."""
        return ("EVAL", source(self.name), len(self.keys), *self.keys, *self.arguments)

    def run(self, connection: Redis) -> Any:
        """Run it by itself."""
        script = connection.register_script(source(self.name))
        return script(keys=self.keys, args=self.arguments)


@dataclass(slots=True)
class Claimed:
    """A job an executor took: its id, its execution ("" to be settled), its hash before that, still bytes."""

    job_id: str
    execution_id: str
    fields: Mapping[bytes, bytes]

    @property
    def settle(self) -> bytes | None:
        """Why the job must be ended instead of run, as JSON; None for an ordinary job."""
        return self.fields.get(b"envq_settle")


@dataclass(slots=True)
class ClaimReply:
    """What one claim brought: the declarations' generation, whether workers are suspended, what is lost, jobs."""

    generation: str
    suspended: bool
    gone: frozenset[str]  # held, but not claimed any more
    jobs: list[Claimed]


class Ended(IntEnum):
    """What became of one end that was to be stored."""

    STORED = 1
    GONE = 0  # the claim went to another, or this end was stored before
    DELETED = -1  # the job was
    HAS_DEPENDENTS = 2  # left to RQ's own code


@dataclass(slots=True)
class Success:
    """An execution that ended well; times in seconds since the epoch."""

    job_id: str
    execution_id: str
    queue: str
    told: str  # what its event says of queue and function
    started: float
    ended: float
    result_ttl: int  # seconds, 0 to keep nothing, -1 for ever
    result: bytes  # as RQ stores it; empty for None
    marked: bool  # its hash had fields of a crash
    depends: bool  # it was enqueued behind others
    signature: str = ""  # of the entry in the stream of results; empty where there is no key

    def packed(self) -> bytes:
        """As finish.lua reads it."""
        job_id, execution_id, started, ended = self.job_id, self.execution_id, self.started, self.ended
        took, ttl = ended - started, self.result_ttl
        score = "+inf" if ttl < 0 else str(int(ended) + ttl)
        event = f'"job_id":{quoted(job_id)},"execution_id":"{execution_id}",{self.told},"duration_ms":{took * 1000:.3f}'
        return _pack(
            (
                job_id, execution_id, self.queue, iso_of(started), iso_of(ended), repr(started), repr(ended),
                ttl, score, self.result, took, self.marked, self.depends, event, self.signature,
            )
        )  # fmt: skip


# The servers' cmsgpack knows one kind of strings.
_pack: Callable[[Any], bytes] = msgpack.Packer(use_bin_type=False).pack  # pyright: ignore


class Exchange:
    """The calls of one executor; what never changes is made once."""

    def __init__(self, keys: Keys, executor: str, *, silence_s: float = USUAL_SILENCE_S) -> None:
        """``silence_s``: so long after a claim, without a sign of life, the executor is dead."""
        self._executor = executor
        self._silence_ms = round(silence_s * 1000)
        self.claims_key = keys.claims(executor)
        worker, executions = rq.worker(executor), rq.worker_executions(executor)
        self._finish_keys = (self.claims_key, worker, executions, keys.events, keys.settle)
        self._claim_keys = (
            self.claims_key, keys.generation, rq.SUSPENDED, keys.settle, keys.executors, worker, executions,
            keys.events, rq.QUEUES,
        )  # fmt: skip
        self._give_back_keys = (self.claims_key, worker, executions, rq.QUEUES)
        self._told = (keys.events_channel, EVENTS_KEPT)

    def finish(self, ends: Iterable[bytes], now: float, *, dead: bool = False) -> ScriptCall:
        """Store these successes; those of a dead executor that have dependents are left to the next that settles."""
        arguments = [self._executor, iso_of(now), *self._told, *_FINISH_PREFIXES, int(dead), *ends]
        return ScriptCall("finish", self._finish_keys, arguments)

    @staticmethod
    def ids_of(ends: Iterable[bytes]) -> list[str]:
        """Of which jobs these are the ends."""
        return [cast(list[Any], msgpack.unpackb(end, raw=True))[0].decode() for end in ends]

    def claim(
        self,
        queue_names: Iterable[str],
        wanted: int,
        *,
        trip: int = 0,
        held: Sequence[str] = (),
        ended: Iterable[str] = (),
    ) -> ScriptCall:
        """
        Take up to ``wanted`` jobs, the most urgent queue first; they start.

        What lies in the claims and is neither in ``held`` nor ``ended`` (a reply was lost, or a blocking wait moved it)
        comes first. The reply tells which of ``held`` are claimed no more.
        """
        keys = [*self._claim_keys, *map(rq.queue, queue_names)]
        arguments = [
            self._executor, trip, wanted, BATCH_BYTES, secrets.token_hex(12), *self._told, *_PREFIXES, self._silence_ms,
            len(held), *held, *ended,
        ]  # fmt: skip
        return ScriptCall("claim", keys, arguments)

    def give_back(self, trip: int, leave: Iterable[str]) -> ScriptCall:
        """Put back what waits, but for these, unless the executor has made another round trip."""
        return ScriptCall("giveback", self._give_back_keys, [trip, *_PREFIXES, *leave])


def read_claim(reply: list[Any]) -> ClaimReply:
    """The reply of a claim."""
    generation, suspended, gone, refused, *jobs = reply
    for job_id in refused:
        log.error(
            "job %r is refused: its id is no UTF-8 text, so nothing could name it; enqueue it under another", job_id
        )
    return ClaimReply(
        generation.decode(errors="replace"),
        bool(suspended),
        frozenset(job_id.decode() for job_id in gone),
        [
            Claimed(job_id.decode(), execution_id.decode(), dict(zip(fields[::2], fields[1::2], strict=True)))
            for job_id, execution_id, fields in jobs
        ],
    )
