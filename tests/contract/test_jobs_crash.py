"""A process that dies loses nothing: the job goes to the front, at most three times, then it fails as lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq.driver.client import Client


@pytest.fixture
def dying() -> Callable[[int], int]:
    """A function whose process dies in its first so many executions; returns the number of the execution."""

    def run(deaths: int) -> int:
        import os
        import signal

        from rq import get_current_job

        job: Any = get_current_job()
        runs = int(job.connection.incr(f"runs:{job.id}"))
        if runs <= deaths:
            os.kill(os.getpid(), signal.SIGKILL)
        return runs

    return run


@pytest.fixture
def running(worker: Callable[..., WorkerProcess]) -> WorkerProcess:
    """A worker of the test's own: executors that die too often are replaced ever more slowly."""
    return worker()


def runs_of(client: Client, job: envq.Job[Any]) -> int:
    return int(client.connection.get(f"runs:{job.id}") or 0)


@pytest.mark.usefixtures("running")
def test_a_job_whose_process_dies_every_time_runs_exactly_four_times(
    client: Client, dying: Callable[[int], int]
) -> None:
    queue = envq.Queue()
    poison, behind = queue.enqueue(dying, 99), queue.enqueue(lambda: "fine")
    with pytest.raises(envq.WorkerLost, match="SIGKILL"):
        envq.get(poison, timeout=20)
    assert envq.get(behind, timeout=10) == "fine"
    assert runs_of(client, poison) == 4
    assert poison.get_status() == "failed"
    assert queue.started_job_registry.get_job_ids(cleanup=False) == []
    assert not list(client.connection.scan_iter("rq:execution*", count=1000))
    assert poison.id in queue.failed_job_registry.get_job_ids()


@pytest.mark.usefixtures("running")
def test_retries_of_the_user_do_not_multiply_the_deaths(client: Client, dying: Callable[[int], int]) -> None:
    job = envq.task(dying).options(retry=envq.Retry(max=5)).enqueue(99)
    with pytest.raises(envq.WorkerLost):
        envq.get(job, timeout=20)
    assert runs_of(client, job) == 4


@pytest.mark.usefixtures("running")
def test_a_job_that_survives_the_fourth_time_has_a_result(client: Client, dying: Callable[[int], int]) -> None:
    job = envq.Queue().enqueue(dying, 3)
    assert envq.get(job, timeout=20) == 4
    assert not client.connection.hexists(job.key, "envq_crashes"), "the count ends with an execution that ended"


@pytest.mark.usefixtures("running")
def test_the_count_begins_again_after_an_execution_that_raised(client: Client) -> None:
    def twice_dying_then_raising() -> int:
        import os
        import signal

        from rq import get_current_job

        job: Any = get_current_job()
        runs = int(job.connection.incr(f"runs:{job.id}"))
        if runs == 3:
            raise ValueError("ended by itself")
        if runs < 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return runs

    job = envq.task(twice_dying_then_raising).options(retry=1).enqueue()
    assert envq.get(job, timeout=30) == 7


@pytest.mark.usefixtures("running")
def test_a_job_whose_process_died_goes_to_the_front_and_no_other_is_blamed(client: Client) -> None:
    def note(number: int, deaths: int = 0) -> None:
        import os
        import signal

        from rq import get_current_job

        job: Any = get_current_job()
        if job.connection.incr(f"runs:{job.id}") <= deaths:
            os.kill(os.getpid(), signal.SIGKILL)
        job.connection.rpush("order", number)

    jobs = [envq.Queue().enqueue(note, number, deaths=2 if number == 0 else 0) for number in range(5)]
    envq.get(jobs, timeout=20)
    assert client.connection.lrange("order", 0, -1) == [b"0", b"1", b"2", b"3", b"4"]
    assert [runs_of(client, job) for job in jobs] == [3, 1, 1, 1, 1]
    for job in jobs:
        assert not client.connection.hexists(job.key, "envq_crashes")


@pytest.mark.usefixtures("running")
def test_a_job_that_must_not_run_twice_fails_at_its_first_death(client: Client, dying: Callable[[int], int]) -> None:
    job = envq.task(dying).options(on_crash="fail").enqueue(99)
    with pytest.raises(envq.WorkerLost):
        envq.get(job, timeout=20)
    assert runs_of(client, job) == 1


@pytest.mark.usefixtures("running")
def test_a_job_that_must_not_run_twice_is_still_retried_when_it_raised(client: Client) -> None:
    def raises_once() -> int:
        from rq import get_current_job

        job: Any = get_current_job()
        runs = int(job.connection.incr(f"runs:{job.id}"))
        if runs == 1:
            raise ValueError("once")
        return runs

    job = envq.task(raises_once).options(on_crash="fail", retry=1).enqueue()
    assert envq.get(job, timeout=10) == 2


@pytest.mark.parametrize("option", ["on_failure", "on_success"])
def test_a_callback_that_kills_its_process_ends_with_the_job(
    option: str, client: Client, worker: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    (tmp_path / "deadly_callback.py").write_text("import os\n\ndef die(*_):\n    os.kill(os.getpid(), 9)\n")
    worker("--path", str(tmp_path))
    function = (lambda: 1 / 0) if option == "on_failure" else (lambda: 1)
    job = envq.Queue().enqueue(function, **{option: envq.Callback("deadly_callback.die")})
    behind = envq.Queue().enqueue(lambda: "fine")
    with pytest.raises(envq.WorkerLost):
        envq.get(job, timeout=30)
    assert envq.get(behind, timeout=15) == "fine"


@pytest.mark.usefixtures("running")
def test_a_lost_job_runs_its_failure_callback_and_frees_its_dependents(
    client: Client, dying: Callable[[int], int]
) -> None:
    lost = envq.task(dying).options(on_crash="fail").enqueue(99)
    after = envq.Queue().enqueue(lambda: "after", depends_on=envq.Dependency([lost], allow_failure=True))
    assert envq.get(after, timeout=20) == "after"


def test_an_executor_killed_from_outside_costs_seconds(running: WorkerProcess, client: Client) -> None:
    def first_hangs() -> int:
        import os
        import threading

        from rq import get_current_job

        job: Any = get_current_job()
        if job.connection.incr(f"runs:{job.id}") == 1:
            job.connection.set(f"pid:{job.id}", os.getpid())
            threading.Event().wait(60)
        return os.getpid()

    job = envq.Queue().enqueue(first_hangs)
    pid = int(eventually(lambda: client.connection.get(f"pid:{job.id}") or False))
    os.kill(pid, signal.SIGKILL)
    assert envq.get(job, timeout=5.0) != pid
    assert running.running


@pytest.mark.usefixtures("running")
def test_a_crash_leaves_no_trace_in_the_registries(client: Client, dying: Callable[[int], int]) -> None:
    queue = envq.Queue()
    job = queue.enqueue(dying, 1)
    assert envq.get(job, timeout=20) == 2
    assert queue.started_job_registry.get_job_ids(cleanup=False) == []
    assert not list(client.connection.scan_iter("rq:execution*", count=1000))
    assert not list(client.connection.scan_iter("envq:default:claims:*", count=1000))


@pytest.mark.usefixtures("running")
def test_many_poison_jobs_do_not_starve_the_others(client: Client, dying: Callable[[int], int]) -> None:
    queue = envq.Queue()
    poison = [queue.enqueue(dying, 99) for _ in range(3)]
    behind = queue.enqueue(lambda: "fine")
    assert envq.get(behind, timeout=30) == "fine"
    assert [runs_of(client, job) for job in poison] == [4, 4, 4]


@pytest.mark.chaos
@pytest.mark.timeout(90)
def test_jobs_of_a_worker_killed_as_a_whole_are_taken_over_within_30_seconds(
    client: Client, worker: Callable[..., WorkerProcess]
) -> None:
    def first_hangs() -> int:
        import threading

        from rq import get_current_job

        job: Any = get_current_job()
        runs = int(job.connection.incr(f"runs:{job.id}"))
        if runs == 1:
            threading.Event().wait(60)
        return runs

    doomed = worker()
    job = envq.Queue().enqueue(first_hangs)
    eventually(lambda: runs_of(client, job) == 1)
    worker()
    doomed.kill()
    assert envq.get(job, timeout=30) == 2


def test_a_worker_that_is_stopped_warm_and_cold_loses_nothing(
    client: Client, worker: Callable[..., WorkerProcess]
) -> None:
    def waits() -> int:
        from rq import get_current_job

        job: Any = get_current_job()
        runs = int(job.connection.incr(f"runs:{job.id}"))
        job.connection.blpop(f"gate:{job.id}", timeout=30)
        return runs

    first = worker()
    queue = envq.Queue()
    finishes, cut_off = queue.enqueue(waits), queue.enqueue(waits)
    eventually(lambda: runs_of(client, finishes) == 1)
    first.send(signal.SIGTERM)
    eventually(lambda: "received SIGTERM" in first.output)  # or it would begin the other job first
    client.connection.rpush(f"gate:{finishes.id}", 1)
    assert first.wait() == 0
    assert envq.get(finishes, timeout=5) == 1
    second = worker()
    eventually(lambda: runs_of(client, cut_off) == 1)
    second.send(signal.SIGTERM)
    eventually(lambda: "received SIGTERM" in second.output)
    eventually(lambda: second.send(signal.SIGTERM) or not second.running)
    assert second.wait() == 1
    client.connection.rpush(f"gate:{cut_off.id}", 1)
    worker()
    assert envq.get(cut_off, timeout=10) == 2
    assert not client.connection.hexists(cut_off.key, "envq_crashes")


def test_a_record_that_kills_whoever_reads_it_fails_alone(running: WorkerProcess, client: Client) -> None:
    def reads_its_meta() -> object:
        from rq import get_current_job

        job: Any = get_current_job()
        return job.meta

    queue = envq.Queue()
    poison = queue.enqueue(reads_its_meta, meta={"deadly": _Deadly()})
    behind = queue.enqueue(lambda: "fine")
    with pytest.raises(envq.WorkerLost):
        envq.get(poison, timeout=40)
    assert envq.get(behind, timeout=10) == "fine"
    assert running.running
    assert not client.connection.exists(f"rq:executions:{poison.id}")


class _Deadly:
    def __reduce__(self) -> tuple[Callable[[int], object], tuple[int]]:
        return os._exit, (9,)
