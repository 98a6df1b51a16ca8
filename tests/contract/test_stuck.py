"""Code that does not come to an end is ended, wherever it is; nobody else waits for it, no clock pays for another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rq.command import send_stop_job_command
from support.deployment import Deployment
from support.hanging import HANGS, STATEMENTS, hanging
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq.driver.client import Client

WORKER = ("--kill-grace", "0.5")


@pytest.fixture
def hang(request: pytest.FixtureRequest) -> Callable[[], None]:
    return hanging(request.param)


def assert_the_next_job_is_fine() -> None:
    assert envq.get(envq.Queue().enqueue(lambda: "fine"), timeout=20) == "fine"


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("hang", HANGS, indirect=True)
def test_a_job_is_timed_out(hang: Callable[[], None]) -> None:
    with pytest.raises(envq.JobFailed, match="JobTimedOut"):
        envq.get(envq.task(timeout=0.3)(hang).enqueue(), timeout=10)
    assert_the_next_job_is_fine()


@pytest.mark.parametrize("hang", HANGS, indirect=True)
def test_a_job_is_stopped_by_rqs_command(driver: Client, hang: Callable[[], None]) -> None:
    def begins() -> None:
        from rq import get_current_job

        job: Any = get_current_job()
        job.connection.set(f"begun:{job.id}", 1)
        hang()

    job = envq.Queue().enqueue(begins)
    eventually(lambda: driver.connection.exists(f"begun:{job.id}") == 1)
    send_stop_job_command(driver.connection, job.id)
    with pytest.raises(envq.JobStopped):
        envq.get(job, timeout=10)
    assert_the_next_job_is_fine()


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("hang", HANGS, indirect=True)
def test_arguments_that_hang_while_they_are_unpickled(hang: Callable[[], None]) -> None:
    class Hangs:
        def __reduce__(self) -> Any:
            return hang, ()

    with pytest.raises(envq.JobFailed, match="JobTimedOut"):
        envq.get(envq.task(lambda _: None).options(timeout=0.3).enqueue(Hangs()), timeout=10)
    assert_the_next_job_is_fine()


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("hang", HANGS, indirect=True)
def test_a_result_that_hangs_while_it_is_pickled(hang: Callable[[], None]) -> None:
    def give() -> object:
        class Hangs:
            def __reduce__(self) -> str:
                hang()
                return ""

        return Hangs()

    with pytest.raises(envq.JobFailed, match="JobTimedOut"):
        envq.get(envq.task(timeout=0.3)(give).enqueue(), timeout=10)
    assert_the_next_job_is_fine()


@pytest.mark.parametrize("how", HANGS)
@pytest.mark.parametrize("option", ["on_success", "on_failure"])
def test_a_callback(
    how: str, option: str, client: Client, worker: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    (tmp_path / "callbacks.py").write_text(
        f"import ctypes, signal, threading\n\ndef hang(*_):\n    {STATEMENTS[how]}\n"
    )
    worker("--path", str(tmp_path), *WORKER)
    function = (lambda: 1 / 0) if option == "on_failure" else (lambda: 1)
    job = envq.Queue().enqueue(function, **{option: envq.Callback("callbacks.hang", timeout=1)})
    with pytest.raises(envq.EnvqError):
        envq.get(job, timeout=30)
    assert job.get_status() == "failed"
    assert_the_next_job_is_fine()


@pytest.mark.parametrize("how", HANGS)
def test_middleware_of_the_user(how: str, client: Client, worker: Callable[..., WorkerProcess], tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text(
        "import ctypes, signal, threading\n\ndef layer(context, call_next):\n    result = call_next(context)\n"
        f"    if result == 'hang':\n        {STATEMENTS[how]}\n    return result\n"
    )
    worker("--path", str(tmp_path), "--middleware", "layers:layer", *WORKER)
    with pytest.raises(envq.JobFailed, match="JobTimedOut"):
        envq.get(envq.task(timeout=0.5)(lambda: "hang").enqueue(), timeout=10)
    assert_the_next_job_is_fine()


def test_a_job_that_is_stuck_holds_up_no_other_executor(deployment: Deployment, driver: Client) -> None:
    """Nor the signs of life of its own."""
    deployment.start_worker("--kill-grace", "0.5", "--lease", "2", "-q", "stuck")

    def stay() -> None:
        import ctypes

        ctypes.PyDLL(None).sleep(4)

    stuck = envq.task(stay).options(queue="stuck", timeout=30).enqueue()
    eventually(lambda: stuck.get_status() == "started")
    assert_the_next_job_is_fine()
    assert envq.get(stuck, timeout=15) is None
    assert driver.connection.hget(stuck.key, "envq_crashes") is None
