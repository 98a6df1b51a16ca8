"""Who is taken for dead, by the server's clock, where workers have different leases."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis import Redis
from rq import Queue
from support.claiming import claim
from support.waiting import eventually

from envq.store.exchange import Exchange, read_claim
from envq.store.keys import Keys, worker
from envq.store.scripts import Beat, beat, silent_executors

HASTY, PATIENT, UNKNOWN = "host.1.1.aaa", "host.2.1.bbb", "host.3.1.ccc"


@pytest.fixture
def keys(namespace: str) -> Keys:
    return Keys(namespace)


@pytest.fixture
def silent(redis_client: Redis, keys: Keys) -> Callable[..., list[str]]:
    """Who is, for somebody who has been in contact for so many milliseconds."""

    def silent(contact_ms: int = 10**9) -> list[str]:
        return silent_executors(redis_client, keys, contact_ms=contact_ms, usually_ms=10_000)

    return silent


def live(client: Redis, keys: Keys, name: str, silence_ms: int) -> None:
    """Register, and give a sign of life."""
    client.hset(worker(name), "state", "idle")
    client.hset(keys.executor(name), "state", "idle")
    assert beat(client, keys, [Beat(name, "", "", "now", 0.0, silence_ms)]) == [True]


def test_each_worker_is_judged_by_its_own_lease(
    redis_client: Redis, keys: Keys, silent: Callable[..., list[str]]
) -> None:
    live(redis_client, keys, PATIENT, 60_000)
    live(redis_client, keys, HASTY, 100)
    eventually(lambda: silent() == [HASTY])
    live(redis_client, keys, HASTY, 60_000)
    assert silent() == []


def test_after_an_outage_a_judge_gives_each_the_time_it_may_be_silent(
    redis_client: Redis, keys: Keys, silent: Callable[..., list[str]]
) -> None:
    for name, silence_ms in ((HASTY, 100), (PATIENT, 60_000)):
        live(redis_client, keys, name, silence_ms)
    redis_client.zadd(keys.executors, {HASTY: 1, PATIENT: 1, UNKNOWN: 1})
    assert silent(50) == []
    assert silent(100) == [HASTY]
    assert silent(10_000) == [HASTY, UNKNOWN]
    assert silent(60_000) == [HASTY, PATIENT, UNKNOWN]


def test_a_claim_is_a_sign_of_life_that_lasts_as_long_as_the_others(
    redis_client: Redis, keys: Keys, silent: Callable[..., list[str]]
) -> None:
    Queue("q", connection=redis_client).enqueue("time.time")
    reply = read_claim(Exchange(keys, HASTY, silence_s=0.1).claim(["q"], 1).run(redis_client))
    assert len(reply.jobs) == 1
    claim(redis_client, keys, PATIENT, ["q"])
    eventually(lambda: silent() == [HASTY])
