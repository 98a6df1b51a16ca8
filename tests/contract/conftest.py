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
