"""The contract of variables: real servers, real `envq worker` processes, this process as the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.deployment import Deployment
from support.diary import Diary
from support.gate import Gate

import envq
from envq.driver.client import Client, driver_scope, swap_default
from envq.environment import env
from envq.store.records import VariableState
from envq.variables import EnvironmentVariable


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """This process as a driver: of the module's deployment if the test uses that, else of the test's database.

    Afterwards nothing is declared any more, so that the module's worker is as good as new.
    """
    if "deployment" in request.fixturenames:
        deployment: Deployment = request.getfixturevalue("deployment")
        url = deployment.url
    else:
        url = request.getfixturevalue("redis_url")
    driver_scope.close()
    before = swap_default(None)
    client = envq.connect(url)
    yield client
    for name in client.declarations.snapshot().declarations:
        client.declarations.remove(name)
    driver_scope.close()
    swap_default(before)


@pytest.fixture
def diary(client: Client) -> Diary:
    """What code on workers writes down."""
    return Diary(client.settings.url)


@pytest.fixture
def gate(client: Client) -> Gate:
    """Where code on workers waits for the test."""
    return Gate(client.settings.url)


@pytest.fixture
def declare(client: Client) -> Callable[..., None]:
    """Declare, and return when ``workers`` executors hold it: ``declare("x", make, reset, workers=2)``."""

    def declare(name: str, *args: object, workers: int = 1, **options: object) -> None:
        setattr(env, name, EnvironmentVariable(*args, **options))  # type: ignore[arg-type]
        envq.wait_ready(name, workers=workers, timeout=30)

    return declare


@pytest.fixture
def states(client: Client) -> Callable[[str], list[VariableState]]:
    """What each executor that knows the variable says of it."""

    def states(name: str) -> list[VariableState]:
        return [view.variables[name] for view in client.executors.all() if name in view.variables]

    return states
