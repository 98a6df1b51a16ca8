"""What a driver can enqueue runs on a worker that has none of the driver's code."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import rq
from rq import Callback, Retry
from support.deployment import Deployment
from support.workers import WorkerProcess

import envq
from envq.code.signing import job_keys
from envq.driver.client import Client

RunScript = Callable[..., CompletedProcess[str]]

MAKE_CARTPOLE = """
    import gymnasium, envq

    def make():            env = gymnasium.make("CartPole-v1"); env.reset(); return env
"""
MAKE_STAND_IN = """
    import random, envq

    class Space:
        def sample(self):  return random.randrange(2)

    class CartPole:
        action_space = Space()
        def reset(self):   self.state = [0.0, 0.0, 0.0, 0.0]
        def step(self, action):
            self.state[0] += action
            return self.state, 1.0, False, False, {}

    def make():            env = CartPole(); env.reset(); return env
"""
STEP = """
    def reset(env):        env.reset(); return env

    envq.env.cartpole = envq.EnvironmentVariable(make, reset)

    @envq.task
    def step():
        env = envq.env.cartpole
        return env.step(env.action_space.sample())

    print(envq.get(step.enqueue(), timeout=10))
"""


@pytest.mark.parametrize("make", [MAKE_CARTPOLE, MAKE_STAND_IN], ids=["gymnasium", "stand-in"])
def test_the_first_script_works_against_a_worker_started_elsewhere(
    make: str, worker: Callable[..., WorkerProcess], run_script: RunScript
) -> None:
    if "gymnasium" in make and importlib.util.find_spec("gymnasium") is None:
        pytest.skip("gymnasium is not installed")
    worker()
    done = run_script(make + STEP)
    assert "1.0, False, False, {}" in done.stdout


def test_lambdas_closures_coroutines_and_partials_run(driver: Client) -> None:
    def adder(n: int) -> Callable[[int], int]:
        def add(x: int) -> int:
            return x + n

        return add

    async def later(x: int) -> int:
        import asyncio

        await asyncio.sleep(0)
        return -x

    queue = envq.Queue()
    jobs = [queue.enqueue(lambda x: x * x, 5), queue.enqueue(adder(10), 5), queue.enqueue(later, 5)]
    assert envq.get(jobs, timeout=10) == [25, 15, -5]


def test_a_module_of_the_driver_runs_after_it_was_shipped(
    driver: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"only_here_{uuid.uuid4().hex[:8]}"  # a module stays shipped for as long as the process lives
    source = "FACTOR = 3\n\ndef inner(x):\n    return x * FACTOR\n\ndef triple(x):\n    return inner(x)\n"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    only_here = importlib.import_module(name)
    try:
        without = envq.Queue().enqueue(only_here.triple, 2)
        with pytest.raises(envq.JobFailed, match=rf"cannot import '{name}.triple'.*envq.ship\(module\)"):
            envq.get(without, timeout=10)
        envq.ship(only_here)
        assert envq.get(envq.Queue().enqueue(only_here.triple, 2), timeout=10) == 6
    finally:
        del sys.modules[name]


def test_a_dotted_name_enqueued_by_a_stock_client_runs(driver: Client) -> None:
    if job_keys():
        pytest.skip("a stock client signs nothing: tests/integration/test_signing.py")
    job = rq.Queue(connection=driver.connection).enqueue("operator.add", 1, 2)
    assert envq.get(job.id, timeout=10) == 3
    assert rq.job.Job.fetch(job.id, driver.connection).return_value() == 3


def test_a_job_with_a_retry_runs_again_after_it_raised(driver: Client) -> None:
    @envq.task
    def flaky() -> int:
        from rq import get_current_job

        job: Any = get_current_job()
        tries = job.connection.incr(f"tries:{job.id}")
        if tries < 3:
            raise ValueError(f"try {tries}")
        return int(tries)

    job = flaky.options(retry=Retry(max=2)).enqueue()
    assert envq.get(job, timeout=10) == 3


def test_a_job_without_a_retry_left_fails_with_the_last_error(driver: Client) -> None:
    @envq.task(retry=1)
    def hopeless() -> None:
        from rq import get_current_job

        job: Any = get_current_job()
        raise ValueError(f"try {job.connection.incr(f'tries:{job.id}')}")

    with pytest.raises(envq.JobFailed, match="try 2"):
        envq.get(hopeless.enqueue(), timeout=10)


def test_a_dependent_runs_after_what_it_depends_on_and_sees_its_result(driver: Client) -> None:
    @envq.task
    def first() -> int:
        return 20

    @envq.task
    def second() -> int:
        from rq import get_current_job

        job: Any = get_current_job()
        return int(job.dependency.return_value()) + 1

    before = first.enqueue()
    after = second.options(depends_on=before).enqueue()
    assert envq.get(after, timeout=10) == 21


def test_a_dependent_of_a_failure_runs_only_if_it_allows_that(driver: Client) -> None:
    @envq.task
    def fails() -> None:
        raise ValueError("no")

    @envq.task
    def cleans_up() -> str:
        return "cleaned"

    failing = fails.enqueue()
    allowed = cleans_up.options(depends_on=envq.Dependency([failing], allow_failure=True)).enqueue()
    waiting = cleans_up.options(depends_on=failing).enqueue()
    assert envq.get(allowed, timeout=10) == "cleaned"
    assert waiting.get_status() == "deferred"


def test_callbacks_run_on_success_failure_and_stop(deployment: Deployment, tmp_path_factory: Any) -> None:
    modules = tmp_path_factory.mktemp("modules")
    (modules / "callbacks_here.py").write_text(
        "def note(job, connection, *more):\n    connection.set(f'noted:{job.id}', len(more))\n"
        "def fail(job, connection, *more):\n    raise ValueError('from the callback')\n"
    )
    worker = deployment.start_worker("callbacks", "-P", str(modules))
    deployment.connect()
    try:
        queue = envq.Queue("callbacks")
        note = Callback("callbacks_here.note")
        good = queue.enqueue(lambda: 1, on_success=note)
        bad = queue.enqueue(lambda: 1 / 0, on_failure=note)
        broken = queue.enqueue(lambda: 1, on_success=Callback("callbacks_here.fail"))
        results = envq.get([good, bad, broken], timeout=10, return_exceptions=True)
    finally:
        deployment.disconnect()
        worker.stop()
    assert results[0] == 1
    assert "ZeroDivisionError" in str(results[1])
    assert "from the callback" in str(results[2])
    assert deployment.redis.get(f"noted:{good.id}") == b"1"
    assert deployment.redis.get(f"noted:{bad.id}") == b"3"
