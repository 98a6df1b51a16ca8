"""Whatever clients and jobs do: RQ's own worker, our batches and `--through-rq` leave the same record behind."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from rq import Callback, Repeat, Retry
from rq.job import Dependency, Job
from rq.rate_limit import RateLimit
from support.same_jobs import CHANGES, ENDS, FAILED, RAISES, SUCCEEDED
from support.servers import Server
from support.worlds import QUEUES, World

# A job that deletes itself is one of the differences.
CHANGED = [word for word in CHANGES if word != "delete itself"]


@pytest.fixture(scope="module")
def world(server_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    server = Server(server_binary).start()
    world = World(server, tmp_path_factory.mktemp("bursts"))
    try:
        yield world
    finally:
        world.end()
        server.remove()


@pytest.fixture(autouse=True)
def clear(world: World) -> None:
    world.clear()


def callback(path: str) -> st.SearchStrategy[Any]:
    return st.sampled_from([None, partial(Callback, path), partial(Callback, RAISES)])


TTLS = st.sampled_from([None, 0, -1, 100, 5000])
RETRIES = st.sampled_from(
    [
        None,
        partial(Retry, max=1),
        partial(Retry, max=3),
        partial(Retry, max=2, enqueue_at_front=True),
        partial(Retry, max=2, interval=[0, 1000]),
    ]
)
REPEATS = st.sampled_from([None, partial(Repeat, times=1), partial(Repeat, times=2, interval=[0, 1000])])
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "result_ttl": TTLS,
        "failure_ttl": st.sampled_from([None, -1, 100, 5000]),
        "ttl": st.sampled_from([None, 1000]),
        "retry": RETRIES,
        "repeat": REPEATS,
        "at_front": st.booleans(),
        "on_success": callback(SUCCEEDED),
        "on_failure": callback(FAILED),
        "meta": st.just({"who": "me"}),
        "unique": st.booleans(),
        "rate_limit": st.sampled_from([None, partial(RateLimit, "few", 1), partial(RateLimit, "more", 2)]),
    },
)
# "enqueue itself" comes late: a job that reads its record after that finds in it that it never started.
SCRIPTS = st.tuples(st.lists(st.sampled_from(CHANGED), max_size=2), st.sampled_from(sorted(ENDS))).map(
    lambda parts: [*sorted(parts[0], key="enqueue itself".__eq__), parts[1]]
)
WHICH = st.integers(min_value=0, max_value=30)


class Histories(RuleBasedStateMachine):
    """What clients do, and now and then a burst."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.world.clear()
        self.ids: list[str] = []
        self.queue_of: dict[str, str] = {}

    @rule(script=SCRIPTS, queue=st.sampled_from(QUEUES), options=OPTIONS)
    def enqueue(self, script: list[str], queue: str, options: dict[str, Any]) -> None:
        self.world.enqueue(self._new(queue), script, queue, **options)

    @rule(scripts=st.lists(SCRIPTS, min_size=2, max_size=5), ttl=TTLS)
    def enqueue_several(self, scripts: list[list[str]], ttl: int | None) -> None:
        for script in scripts:
            self.world.enqueue(self._new(), script, result_ttl=ttl)

    @precondition(lambda self: self.ids)
    @rule(
        script=SCRIPTS, queue=st.sampled_from(QUEUES), options=OPTIONS, on=st.lists(WHICH, min_size=1, max_size=3),
        allow=st.booleans(), front=st.booleans(),
    )  # fmt: skip
    def enqueue_behind(
        self, script: list[str], queue: str, options: dict[str, Any], on: list[int], allow: bool, front: bool
    ) -> None:
        ids = sorted({self._old(each) for each in on})
        self.world.enqueue(
            self._new(queue), script, queue, **options,
            depends_on=partial(Dependency, ids, allow_failure=allow, enqueue_at_front=front),
        )  # fmt: skip

    @precondition(lambda self: self.ids)
    @rule(which=WHICH, script=SCRIPTS, unique=st.booleans())
    def enqueue_again(self, which: int, script: list[str], unique: bool) -> None:
        job_id = self._old(which)
        self.world.enqueue(job_id, script, self.queue_of[job_id], unique=unique)

    @precondition(lambda self: self.ids)
    @rule(which=WHICH, dependents=st.booleans())
    def cancel(self, which: int, dependents: bool) -> None:
        job_id = self._old(which)
        if self.world.is_queued_twice(job_id):
            return  # RQ takes one of the two out, and runs the other although the job is cancelled
        self.world.each(lambda client: Job.fetch(job_id, client).cancel(enqueue_dependents=dependents))

    @precondition(lambda self: self.ids)
    @rule(which=WHICH, dependents=st.booleans())
    def delete(self, which: int, dependents: bool) -> None:
        job_id = self._old(which)
        self.world.each(lambda client: Job.fetch(job_id, client).delete(delete_dependents=dependents))

    @precondition(lambda self: self.ids)
    @rule(which=WHICH, front=st.booleans())
    def requeue(self, which: int, front: bool) -> None:
        job_id = self._old(which)
        self.world.each(lambda client: Job.fetch(job_id, client).requeue(at_front=front).get_status())

    @precondition(lambda self: self.ids)
    @rule()
    def come_due(self) -> None:
        self.world.come_due()

    @precondition(lambda self: self.ids)
    @rule(wanted=st.sampled_from([1, 2, 64]))
    def work(self, wanted: int) -> None:
        self.world.work(wanted)

    def teardown(self) -> None:
        self.world.work()
        self.world.come_due()
        self.world.work()
        self.world.compare_as_read()

    def _new(self, queue: str = "default") -> str:
        self.ids.append(f"job{len(self.ids)}")
        self.queue_of[self.ids[-1]] = queue
        return self.ids[-1]

    def _old(self, which: int) -> str:
        return self.ids[which % len(self.ids)]


@pytest.mark.timeout(600)
def test_any_history_leaves_the_same_record(world: World, pytestconfig: pytest.Config) -> None:
    """Where it fails, ``--scale 1`` runs five times as many, and finds the shortest of those that fail."""
    scale: float = pytestconfig.getoption("--scale")

    class Here(Histories):
        pass

    Here.world = world
    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=max(1, round(300 * scale)),
            stateful_step_count=15,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink] if scale >= 1 else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


# -- histories in which there was a difference once ------------------------------------------------------------


def test_callbacks_see_a_job_that_has_ended(world: World) -> None:
    world.enqueue("good", ["value"], on_success=partial(Callback, SUCCEEDED))
    world.enqueue("bad", ["save meta", "raise"], on_failure=partial(Callback, FAILED), retry=partial(Retry, max=1))
    world.enqueue("worse", ["none"], on_success=partial(Callback, RAISES), on_failure=partial(Callback, FAILED))
    world.work()


def test_a_job_that_was_cancelled_while_it_ran_and_keeps_nothing_leaves_nothing(world: World) -> None:
    world.enqueue("cancelled", ["cancel itself", "value"], result_ttl=0)
    world.work()
    assert world.keys("cancelled") == []


def test_what_a_job_changes_in_its_record_is_stored(world: World) -> None:
    world.enqueue("described", ["describe", "none"])
    world.enqueue("kept", ["keep for ever", "value"], result_ttl=100)
    world.enqueue("forgotten", ["keep nothing", "value"])
    world.enqueue("given up", ["give up", "raise"], retry=partial(Retry, max=3))
    world.work()
    assert world.keys("forgotten") == []


def test_a_job_may_read_its_record_again(world: World) -> None:
    for end in ENDS:
        world.enqueue(end.replace(" ", "-"), ["refresh", end], retry=partial(Retry, max=1, interval=1000))
    world.work()


def test_a_burst_runs_what_its_last_job_brought_in(world: World) -> None:
    """The claim that goes out with its end finds nothing yet."""
    world.enqueue("first", ["none"])
    world.enqueue("second", ["none"], depends_on="first")
    world.work()


def test_an_id_that_was_enqueued_three_times_runs_three_times(world: World) -> None:
    for _ in range(3):
        world.enqueue("a", ["save meta", "value"])
    world.work()


@pytest.mark.parametrize("script", [["none"], ["retry later"]])
def test_the_time_to_live_of_an_earlier_run_ends_with_the_next(world: World, script: list[str]) -> None:
    world.enqueue("a", ["raise"], failure_ttl=100)
    world.work()
    world.enqueue("a", script, result_ttl=-1)
    world.work()


def test_a_job_that_is_enqueued_again_while_it_runs_runs_again(world: World) -> None:
    world.enqueue("a", ["enqueue itself", "value"])
    world.enqueue("b", ["enqueue itself", "describe", "value"], result_ttl=0)
    world.work()


def test_a_dependent_that_cannot_be_enqueued_keeps_no_slot_occupied(world: World) -> None:
    """Enqueued again by itself after it was deleted, it depends on nothing, and RQ stumbles over that."""
    world.enqueue("first", ["raise"], rate_limit=partial(RateLimit, "few", 1))
    world.enqueue("second", ["none"], depends_on="first")
    world.each(lambda client: Job.fetch("second", client).delete())
    world.enqueue("second", ["none"])
    world.work()


# -- where we differ, and why ----------------------------------------------------------------------------------
#
# - RQ's worker writes the whole record of a job again with each result, so a job that was deleted while it ran leaves
#   a hash without a call that no registry shows. Ours leaves nothing.
# - For the same reason what was enqueued under the same id meanwhile gets the old call back. Ours has the new one.
# - An id that a client pushed twice and then cancelled runs in RQ. Here a cancelled job is not begun.
# - Jobs that were claimed together have started in the record, so what cancels one of them then comes too late, and
#   what comes to the front runs after them (`WHO_ENDED_LAST`).
# - A result that cannot be pickled is RQ's text that says so; here the job fails (test_jobs_run.py).
# - What runs has an infinite score in the registry of started jobs (test_claims.py).


def test_a_job_that_was_deleted_while_it_ran_leaves_nothing(world: World) -> None:
    world.enqueue("deleted", ["delete itself", "value"])
    world.burst()
    assert world.keys("deleted", "stock")
    assert world.keys("deleted", "batches") == world.keys("deleted", "through-rq") == []


def test_a_cancelled_job_does_not_run_for_an_id_that_was_pushed_twice(world: World) -> None:
    world.enqueue("a", ["none"])
    world.enqueue("a", ["none"])
    world.each(lambda client: Job.fetch("a", client).cancel())
    world.burst()
    assert [client.get("plays:a") for client in world.clients.values()] == [b"1", None, None]
