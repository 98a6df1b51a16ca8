"""The end of an execution is stored once and in full, whatever is lost on the way."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import redis
from redis import Redis
from redis.client import Pipeline
from rq import Queue
from support.claiming import claim
from support.proxy import CUT_BEFORE, CuttingProxy
from support.servers import Server

from envq.store.connection import worker_client
from envq.store.keys import Keys, executions, wip, worker_executions
from envq.store.scripts import release
from envq.workers.execution.fence import FencedPipeline, FencedRedis
from envq.workers.execution.storing import Storing
from envq.workers.execution.worker_job import WorkerJob

EXECUTOR = "host.1.1.abc"


class NothingElse:
    """Endings that must not be needed."""

    def follow_up(self, job: WorkerJob) -> str:
        raise AssertionError(job.id)

    def give_up(self, job: WorkerJob, cause: BaseException) -> str:
        raise AssertionError(job.id) from cause


@pytest.fixture
def keys(namespace: str) -> Keys:
    return Keys(namespace)


@pytest.fixture
def claimed(redis_client: Redis, keys: Keys) -> WorkerJob:
    job_id = Queue("q", connection=redis_client).enqueue("time.time").id
    claim(redis_client, keys, EXECUTOR, ["q"])
    return WorkerJob.fetch(job_id, connection=redis_client)


def test_a_start_whose_reply_was_lost_leaves_nothing(redis_client: Redis, keys: Keys, claimed: WorkerJob) -> None:
    (again,) = claim(redis_client, keys, EXECUTOR, ["q"]).jobs
    execution = again.execution_id
    assert again.job_id == claimed.id
    assert redis_client.zrange(executions(claimed.id), 0, -1) == [execution.encode()]
    assert redis_client.zrange(wip("q"), 0, -1) == [f"{claimed.id}:{execution}".encode()]
    assert redis_client.smembers(worker_executions(EXECUTOR)) == {f"{claimed.id}:{execution}".encode()}
    assert len(list(redis_client.scan_iter(f"rq:execution:{claimed.id}:*", count=1000))) == 1


@pytest.mark.parametrize("swallowed", [False, True])
def test_what_follows_is_made_up_for_where_the_reply_was_lost(
    redis_client: Redis, keys: Keys, claimed: WorkerJob, monkeypatch: pytest.MonkeyPatch, swallowed: bool
) -> None:
    """RQ swallows an error of the transaction that stores a failure."""
    execute, followed = FencedPipeline.execute, list[str]()

    def lose_the_reply(pipeline: FencedPipeline, *args: Any, **options: Any) -> Any:
        execute(pipeline, *args, **options)
        if pipeline.fence is not None:
            pipeline.fence.settled = False
        raise redis.ConnectionError("lost")

    fenced = FencedRedis.over(redis_client)

    def write() -> str:
        with fenced.pipeline() as pipeline:
            pipeline.incr("stored")
            pipeline.end_claim()
            try:
                pipeline.execute()
            except redis.ConnectionError:
                if not swallowed:
                    raise
        return "failed"

    class Followed(NothingElse):
        def follow_up(self, job: WorkerJob) -> str:
            followed.append(job.id)
            if len(followed) < 3:
                raise redis.ConnectionError("still away")
            return "failed"

    monkeypatch.setattr(FencedPipeline, "execute", lose_the_reply)
    assert Storing(fenced, keys, EXECUTOR, Followed()).store(claimed, write) == "failed"
    assert redis_client.get("stored") == b"1"
    assert followed == [claimed.id] * 3


def test_nothing_follows_where_the_claim_was_somebody_else_s(
    redis_client: Redis, keys: Keys, claimed: WorkerJob
) -> None:
    release(redis_client, keys, EXECUTOR, running="", why="handback", dead=True)
    fenced = FencedRedis.over(redis_client)

    def write() -> str:
        with fenced.pipeline() as pipeline:
            pipeline.end_claim()
            pipeline.execute()
        return "finished"

    assert Storing(fenced, keys, EXECUTOR, NothingElse()).store(claimed, write) == "lost"


def test_what_fails_after_the_commit_does_not_undo_it(redis_client: Redis, keys: Keys, claimed: WorkerJob) -> None:
    fenced = FencedRedis.over(redis_client)

    class Finished(NothingElse):
        def follow_up(self, job: WorkerJob) -> str:
            return "finished"

    def write() -> str:
        with fenced.pipeline() as pipeline:
            pipeline.incr("stored")
            pipeline.end_claim()
            pipeline.execute()
        raise ValueError("RQ's own code, after its transaction")

    assert Storing(fenced, keys, EXECUTOR, Finished()).store(claimed, write) == "finished"
    assert redis_client.get("stored") == b"1"


def test_a_record_of_which_nothing_can_be_made_holds_up_nobody(
    redis_client: Redis, keys: Keys, claimed: WorkerJob
) -> None:
    fenced = FencedRedis.over(redis_client)

    class Broken(NothingElse):
        def give_up(self, job: WorkerJob, cause: BaseException) -> str:
            raise ValueError("here as well")

    def write() -> str:
        raise ValueError("damaged")

    assert Storing(fenced, keys, EXECUTOR, Broken()).store(claimed, write) == "lost"
    assert redis_client.llen(keys.claims(EXECUTOR)) == 0


def test_giving_up_a_claim_is_repeated_where_the_connection_is_lost(
    redis_client: Redis, keys: Keys, claimed: WorkerJob, server: Server
) -> None:
    """Or the job would run again, be it one that must not."""
    proxy = CuttingProxy(server.port)
    database = redis_client.connection_pool.connection_kwargs["db"]
    fenced = FencedRedis.over(worker_client(f"redis://127.0.0.1:{proxy.port}/{database}"))

    class Broken(NothingElse):
        def give_up(self, job: WorkerJob, cause: BaseException) -> str:
            raise ValueError("here as well")

    def write() -> str:
        raise ValueError("damaged")

    try:
        proxy.cut(b"LREM", CUT_BEFORE, times=2)
        assert Storing(fenced, keys, EXECUTOR, Broken()).store(claimed, write) == "lost"
        assert proxy.left == 0
    finally:
        fenced.close()
        proxy.close()
    assert redis_client.llen(keys.claims(EXECUTOR)) == 0


def test_a_connection_lost_while_it_watches_is_no_claim_that_was_lost(
    redis_client: Redis, keys: Keys, claimed: WorkerJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """redis-py makes a WatchError of it, upon which RQ's code begins anew and finds the claim gone."""
    execute, followed = Pipeline.execute, list[str]()

    def lose_the_reply(pipeline: Pipeline, *args: Any, **options: Any) -> Any:
        execute(pipeline, *args, **options)
        raise redis.WatchError("A ConnectionError occurred while watching one or more keys")

    fenced = FencedRedis.over(redis_client)

    def write() -> str:
        with fenced.pipeline() as pipeline:
            while True:
                pipeline.watch("dependents")
                pipeline.multi()
                pipeline.end_claim()
                with contextlib.suppress(redis.WatchError):
                    pipeline.execute()

    class Followed(NothingElse):
        def follow_up(self, job: WorkerJob) -> str:
            followed.append(job.id)
            return "finished"

    monkeypatch.setattr(Pipeline, "execute", lose_the_reply)
    assert Storing(fenced, keys, EXECUTOR, Followed()).store(claimed, write) == "finished"
    assert followed == [claimed.id]
