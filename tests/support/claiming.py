"""An executor's round trips, made by a test."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from redis import Redis

from envq.store.exchange import USUAL_SILENCE_S, Claimed, ClaimReply, Exchange, Success, read_claim
from envq.store.keys import Keys


def claim(
    client: Redis,
    keys: Keys,
    executor: str,
    queues: Sequence[str],
    *,
    wanted: int = 1,
    held: Sequence[str] = (),
    trip: int = 1,
    silence_s: float = USUAL_SILENCE_S,
) -> ClaimReply:
    """Claim with these ids already held."""
    call = Exchange(keys, executor, silence_s=silence_s).claim(queues, wanted, trip=trip, held=held)
    return read_claim(call.run(client))


def success(claimed: Claimed, result: bytes = b"gARLBS4=", result_ttl: int = 500) -> bytes:
    """The end of a claimed job that returned 5."""
    now = time.time()
    queue = claimed.fields.get(b"origin", b"").decode()
    told = f'"queue":"{queue}","func":"f"'
    return Success(
        claimed.job_id, claimed.execution_id, queue, told, now - 0.25, now, result_ttl, result, False, False
    ).packed()


def finish(client: Redis, keys: Keys, executor: str, ends: Iterable[bytes], *, dead: bool = False) -> list[int]:
    """Store these ends; what became of each."""
    return Exchange(keys, executor).finish(ends, time.time(), dead=dead).run(client)
