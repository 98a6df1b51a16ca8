"""Fixtures of the chaos ring: whoever connects is a driver for one test only."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.proxy import CuttingProxy
from support.servers import Server

from envq.driver.client import driver_scope, swap_default


@pytest.fixture(autouse=True)
def driver() -> Iterator[None]:
    """What a test declares and connects to ends with it."""
    driver_scope.close()
    before = swap_default(None)
    yield
    driver_scope.close()
    swap_default(before)


@pytest.fixture
def server(own_server: Callable[..., Server]) -> Server:
    """A server that the test may mistreat."""
    return own_server()


@pytest.fixture
def proxy(server: Server) -> Iterator[CuttingProxy]:
    """What stands between it and whoever is to lose a connection."""
    made = CuttingProxy(server.port)
    yield made
    made.close()
