"""A Redis client whose transactions commit only while a claim stands.

RQ's own code stores results through it. A returning ghost - an executor that was taken for dead and whose
job was given to another - finds its claim gone and changes nothing.
"""

from __future__ import annotations

from typing import Any, Final, cast

from redis import Redis
from redis.client import Pipeline
from redis.exceptions import WatchError

from envq.code.signing import job_keys
from envq.jobs.signed import SIGNATURE, result_signature
from envq.store import keys as rq
from envq.store.connection import REDIS_ERRORS
from envq.store.scripts import standing

_CHANGED: Final = "Watched variable changed."


class Refused(BaseException):
    """The fence let nothing pass. No Exception: RQ's code would take it for a failure of Redis and go on."""


class ClaimLost(Refused):
    """The claim was settled by somebody else; nothing was written."""


class JobDeleted(Refused):
    """The job was deleted while it ran; nothing was written, or its record would be back without the call."""


class Fence:
    """One claim under which one execution is stored; ``deleted`` once the job was found to be gone."""

    def __init__(self, claims_key: str, job_id: str) -> None:
        self.claims_key = claims_key
        self.job_id = job_id
        self.settled = False
        self.perhaps_settled = False  # its transaction was sent, and what became of it is not known
        self.deleted = False


class FencedRedis(Redis):
    """A client on another client's pool; ``fence`` is set while an execution is stored."""

    fence: Fence | None = None

    @classmethod
    def over(cls, client: Redis) -> FencedRedis:
        """Share the pool of a client."""
        return cls(connection_pool=cast(Any, client).connection_pool)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> FencedPipeline:
        """A pipeline that knows the fence in force now."""
        pipeline = FencedPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        fence = self.fence
        pipeline.fence = fence if fence is not None and not fence.settled else None
        return pipeline


class FencedPipeline(Pipeline):
    """A transaction that begins by watching the claims and the job, and asking whether both are there."""

    fence: Fence | None = None
    _ends_claim = False

    def end_claim(self) -> None:
        """Make this the transaction that stores the execution: it also removes the claim."""
        if self.fence is not None:
            self._ends_claim = True
            cast(Any, self).lrem(self.fence.claims_key, 1, self.fence.job_id)

    def xadd(self, name: Any, fields: Any, *args: Any, **options: Any) -> Any:
        """Results, which RQ's code writes, are signed where there is a key."""
        if job_keys() and str(name).startswith(rq.RESULTS_PREFIX):
            fields = {**fields, SIGNATURE: result_signature(str(name).removeprefix(rq.RESULTS_PREFIX), fields)}
        return cast(Any, super()).xadd(name, fields, *args, **options)

    def watch(self, *names: Any) -> bool:
        """Watch the claims along with what RQ watches."""
        watched: list[Any] = [*names]
        if self.fence is not None:
            watched += [self.fence.claims_key, rq.job(self.fence.job_id)]
        return cast(bool, cast(Any, super()).watch(*watched))

    def multi(self) -> None:
        """Begin the transaction, if the claim stands."""
        if self.fence is not None:
            self._require_claim(self.fence)
        super().multi()

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Commit; raises ClaimLost or JobDeleted where either is gone, WatchError where it goes at this moment."""
        fence = self.fence
        if fence is None or not self._ends_claim:
            return super().execute(raise_on_error)
        if not self.explicit_transaction:
            commands, self.command_stack = self.command_stack, []
            self.watch()
            self.multi()
            self.command_stack = commands
        try:
            replies = super().execute(raise_on_error)
        except WatchError as error:
            # Also what redis-py makes of a connection that was lost while it watched: RQ's code then begins anew.
            fence.perhaps_settled = fence.perhaps_settled or str(error) != _CHANGED
            raise
        except REDIS_ERRORS:
            fence.perhaps_settled = True
            raise
        fence.settled = True
        return replies

    def reset(self) -> None:
        """Forget what was buffered, the mark included."""
        self._ends_claim = False
        super().reset()

    def _require_claim(self, fence: Fence) -> None:
        # Watching and before MULTI, so this runs at once.
        claimed, exists = standing(self, fence.claims_key, fence.job_id)
        if not claimed:
            self.reset()
            raise ClaimLost(f"job {fence.job_id} was given to another executor; this result is dropped")
        if not exists and not fence.deleted:
            self.reset()
            fence.deleted = True
            raise JobDeleted(f"job {fence.job_id} was deleted while it ran; its result is dropped")
