"""C19: `--check-resets` names the value that a reset left dirty, and the job."""

from __future__ import annotations

import threading
from collections.abc import Callable

from support.deployment import Deployment
from support.jobs import enqueue, run
from support.waiting import eventually

import envq
from envq.driver.client import Client
from envq.environment import env
from envq.store.events import read
from envq.store.records import EventKind

WORKER = ("--check-resets",)


def test_what_differs_from_the_fresh_value_is_reported_with_its_job(
    deployment: Deployment, client: Client, declare: Callable[..., None]
) -> None:
    declare("dirty", dict, lambda value: value)
    declare("clean", dict, lambda value: {})

    def change() -> None:
        env.dirty["left"] = "behind"
        env.clean["left"] = "behind"

    def look() -> int:
        return len(env.dirty) + len(env.clean)

    guilty = enqueue(change)
    envq.get(guilty, timeout=30)
    assert [run(look) for _ in range(2)] == [1, 1]
    [report] = reports_on(deployment, "dirty")
    assert "WARNING" in report
    assert guilty.id in report
    assert "change" in report
    assert reports_on(deployment, "clean") == []


def reports_on(deployment: Deployment, name: str) -> list[str]:
    lines = deployment.worker.output.splitlines()
    return [line for line in lines if "is not as it was built" in line and f"{name!r}" in line]


def test_a_forgotten_field_is_told_once_for_each_function_in_log_event_and_state(
    deployment: Deployment, client: Client, declare: Callable[..., None]
) -> None:
    class Board:
        def __init__(self) -> None:
            self.moves: list[int] = []
            self.score = 0

    def forgets_the_score(board: Board) -> Board:
        board.moves.clear()
        return board

    def play() -> None:
        env.board.moves.append(1)
        env.board.score += 1

    def cheat() -> None:
        env.board.score += 100

    declare("board", Board, forgets_the_score)
    jobs = [enqueue(function) for function in (play, play, cheat, play, cheat)]
    envq.get(jobs, timeout=30)

    def counted() -> None:
        [view] = client.executors.all()
        assert view.variables["board"].dirty == 5

    eventually(counted)
    assert len(reports_on(deployment, "board")) == 2
    entries = [each for _, fields in client.connection.xrange(client.keys.events) for each in read(fields[b"event"])]
    told = [each for each in entries if each.kind == EventKind.VARIABLE_DIRTY and each.env == "board"]
    assert [(each.job_id, each.func.rpartition(".")[2]) for each in told] == [
        (jobs[0].id, "play"),
        (jobs[2].id, "cheat"),
    ]


def test_what_cannot_be_compared_is_said_once_and_serves_all_the_same(
    deployment: Deployment, client: Client, declare: Callable[..., None]
) -> None:
    class Endless:
        def __reduce_ex__(self, protocol: object) -> object:
            import signal

            while True:
                signal.pause()

    declare("lock", threading.Lock, lambda value: value)
    declare("endless", Endless, lambda value: value, reset_timeout=0.2)
    assert [run(lambda: (env.lock.locked(), env.endless is None)) for _ in range(3)] == [(False, False)] * 3
    for name, why in (("lock", "nothing can be read of"), ("endless", "more than reset_timeout (0.2 s)")):
        lines = deployment.worker.output.splitlines()
        [report] = [line for line in lines if f"{name!r} cannot be compared" in line]
        assert why in report
