"""The verdict on a storm finds what is wrong with a job, and nothing where all is well."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from chaos.storm.declaring import Declaring
from chaos.storm.driver import Enqueued
from chaos.storm.ledger import Effects
from chaos.storm.plan import Order
from chaos.storm.verdict import Verdict
from rq import Queue
from rq.results import Result

import envq
from envq.driver.client import driver_scope, swap_default

pytestmark = pytest.mark.chaos

PARENT, CHILD, ONCE, READ, TOLD = range(1, 6)
KINDS = {PARENT: "parent", CHILD: "child", ONCE: "once", READ: "read", TOLD: "told"}
DEEDS = {PARENT: "nap", CHILD: "noop", TOLD: "noop"}
RESULTS = {PARENT: 7, CHILD: 14, ONCE: 21, READ: (28, 2, 5), TOLD: 35}
LINES = (
    *("begun 1 10", "ended 1 10", "begun 2 10", "ended 2 10", "begun 3 10", "ended 3 10"),
    *("begun 4 10", "ended 4 10", "begun 5 10", "ended 5 10", "told storm-5 success"),
)


@pytest.fixture
def client(redis_url: str, redis_client: redis.Redis) -> Iterator[redis.Redis]:
    """Of a server that is the default one of this process."""
    driver_scope.close()
    before = swap_default(None)
    envq.connect(redis_url)
    yield redis_client
    driver_scope.close()
    swap_default(before)


def judge(client: redis.Redis, directory: Path, lines: tuple[str, ...], results: dict[int, Any], stored: int) -> str:
    """The faults found, as one text."""
    done = dict[int, Enqueued]()
    for number, kind in KINDS.items():
        job = Queue(connection=client).create_job("time.time", job_id=f"storm-{number}", status="finished")
        job.save()
        for _ in range(stored if number == ONCE else 1):
            Result.create(job, Result.Type.SUCCESSFUL, ttl=500, return_value=results[number])
        order = Order(number, kind, "default", parent=PARENT if number == CHILD else None)
        labels = {"steady": 2, "chained": 5}
        done[number] = Enqueued(order, job.id, str(number), DEEDS.get(number, kind), labels=labels)
    declaring = Declaring()
    declaring.latest = {"steady": 3, "chained": 5}
    (directory / "effects").write_text("\n".join(lines))
    return "\n".join(Verdict(done, Effects(directory / "effects"), declaring, client).faults)


def without(line: str) -> tuple[str, ...]:
    return tuple(each for each in LINES if each != line)


def test_nothing_is_found_where_all_is_well(client: redis.Redis, tmp_path: Path) -> None:
    assert judge(client, tmp_path, LINES, RESULTS, 1) == ""


@pytest.mark.parametrize(
    ("lines", "results", "stored", "found"),
    [
        (without("begun 3 10"), {}, 1, "has no effect"),
        ((*LINES, "begun 3 11"), {}, 1, "must not run twice, and ran 2 times"),
        (LINES, {}, 2, "has 2 successes"),
        (LINES, {ONCE: 22}, 1, "must return 21"),
        (LINES, {READ: (28, 1, 5)}, 1, "saw version 1 of steady, and was enqueued when 2 was declared"),
        (LINES, {READ: (28, 2, 6)}, 1, "saw version 6 of chained, which was never declared"),
        ((*LINES, "dirty custom {}"), {}, 1, "dirty read"),
        (without("told storm-5 success"), {}, 1, "has a callback that did not run"),
        (("begun 2 9", *LINES), {}, 1, "began before its parent had ended"),
    ],
)
def test_what_is_wrong_is_found(
    client: redis.Redis, tmp_path: Path, lines: tuple[str, ...], results: dict[int, Any], stored: int, found: str
) -> None:
    assert found in judge(client, tmp_path, lines, RESULTS | results, stored)
