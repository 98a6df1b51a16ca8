"""Fixtures of the contract ring: a driver, and for tests of jobs a worker that a whole module shares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.deployment import Deployment
from support.signing import KEY, keys

import envq
from envq.driver import client as client_module
from envq.driver.client import Client


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    """This process as a driver of the test's database."""
    before = client_module.swap_default(None)
    yield envq.connect(redis_url)
    client_module.driver_scope.close()
    client_module.swap_default(before)


PATHS = {"batches": (), "through-rq": ("--through-rq",), "isolated": ("--isolate",)}
SIGNED = ("test_jobs_run", "test_jobs_get", "test_jobs_travel", "test_jobs_crash")


# What is so in one process that lasts, and has no meaning where each job has its own.
NOT_ISOLATED = {
    "test_a_forgotten_return_of_a_reset_is_a_rebuild_and_a_warning": "what a job changes ends with it",
    "test_random_numbers_are_fresh_for_each_job_and_repeat_with_a_seed": "numpy is imported anew by each job",
    "test_coroutines_share_one_event_loop_and_leak_no_descriptors": "the loop ends with the job",
    "test_what_one_coroutine_job_made_another_can_await": "the loop ends with the job",
    "test_tasks_a_job_leaves_on_the_loop_are_cancelled_before_the_next_job": "tasks end with the job",
    "test_a_fraction_of_a_second_is_kept_to_and_the_process_goes_on": "each job has a process of its own",
    "test_code_that_swallows_exceptions_is_timed_out_all_the_same": "each job has a process of its own",
    "test_a_coroutine_is_timed_out_and_the_event_loop_goes_on": "the loop ends with the job",
    "test_a_result_that_hangs_while_it_is_pickled_is_ended_as_any_code_of_the_job": "each job has a process of its own",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what isolated jobs cannot show."""
    for item in items:
        reason = NOT_ISOLATED.get(getattr(item, "originalname", ""))
        if reason and "isolated" in item.name:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What is promised of jobs holds on both ways in which a worker stores them; of variables one is enough."""
    module = metafunc.module.__name__
    if "deployment" in metafunc.fixturenames and ".variables." not in module:
        ways = [*PATHS, "signed"] if module.endswith(SIGNED) else [*PATHS]
        metafunc.parametrize("deployment", ways, indirect=True, scope="module")


@pytest.fixture(scope="module")
def deployment(
    request: pytest.FixtureRequest, server_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """A server and one worker for all tests of a module; a module's WORKER are the worker's arguments."""
    arguments: tuple[str, ...] = getattr(request.module, "WORKER", ())
    path: str = getattr(request, "param", "batches")
    env = {"ENVQ_SIGNING_KEY": KEY} if path == "signed" else {}
    shared = Deployment(server_binary, tmp_path_factory.mktemp("deployment"), PATHS.get(path, ()), env)
    try:
        with keys(env):
            shared.start_worker(*arguments)
            yield shared
    finally:
        shared.end()


@pytest.fixture
def driver(deployment: Deployment) -> Iterator[Client]:
    """This process as a driver of the module's deployment."""
    yield deployment.connect()
    deployment.disconnect()
