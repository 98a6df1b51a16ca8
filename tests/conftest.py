"""Fixtures of all rings: a server of our own, an empty database per test, workers and driver scripts."""

from __future__ import annotations

import itertools
import os
import shlex
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import redis
from support.processes import Process, clean_environment
from support.servers import BINARIES, DATABASES, Server, binary_version
from support.workers import EVERY_WORKER, WorkerProcess

DATABASE_NUMBERS = itertools.cycle(range(DATABASES))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--scale",
        type=float,
        default=0.2,
        help="how much of the long tests to run: 1 is what the README promises to have been seen (default: 0.2)",
    )
    parser.addoption(
        "--server",
        choices=sorted(BINARIES),
        default=os.environ.get("ENVQ_TEST_SERVER", "valkey"),
        help="the server to test against (default: valkey, or ENVQ_TEST_SERVER)",
    )
    parser.addoption(
        "--worker",
        default="",
        help='options for every worker of the tests, as in --worker="--isolate" (default: none)',
    )


def pytest_configure(config: pytest.Config) -> None:
    """A server that is not installed is left out aloud; in CI, where all are promised, it is a failure."""
    EVERY_WORKER[:] = shlex.split(config.getoption("--worker"))
    name = config.getoption("--server")
    if BINARIES[name]() is None:
        pytest.exit(f"{name}: this server is not installed here, left out", returncode=1 if "CI" in os.environ else 0)


def pytest_report_header(config: pytest.Config) -> str:
    name = config.getoption("--server")
    binary = BINARIES[name]()
    return f"server: {name}, {binary_version(binary) if binary else 'absent'}"


@pytest.fixture
def scaled(pytestconfig: pytest.Config) -> Callable[[int], int]:
    """A number of rounds or jobs, cut down as ``--scale`` says."""
    scale: float = pytestconfig.getoption("--scale")
    return lambda number: max(1, round(number * scale))


@pytest.fixture(scope="session")
def server_binary(pytestconfig: pytest.Config) -> Path:
    """The executable of the selected server."""
    binary = BINARIES[pytestconfig.getoption("--server")]()
    assert binary is not None
    return binary


@pytest.fixture(scope="session")
def server(server_binary: Path) -> Iterator[Server]:
    """The server that the tests of this process share; never stopped, reconfigured or paused by a test."""
    shared = Server(server_binary).start()
    yield shared
    shared.remove()


@pytest.fixture
def own_server(server_binary: Path) -> Iterator[Callable[..., Server]]:
    """A factory of servers for tests that stop or configure one: ``own_server("--maxmemory", "50mb")``."""
    started: list[Server] = []

    def start(*options: str) -> Server:
        started.append(Server(server_binary, *options))
        return started[-1].start()

    yield start
    for each in started:
        each.remove()


@pytest.fixture
def redis_url(server: Server) -> str:
    """The URL of an empty database; the tests take turns over all numbers, so that stragglers do not meet."""
    database = next(DATABASE_NUMBERS)
    with server.client(database) as client:
        client.flushdb()
    return server.url(database)


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    """A plain client of the test's database, answers as bytes."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def namespace() -> str:
    """A namespace nobody else uses (pub/sub channels are shared by all databases of a server)."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def start_process(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """A factory of processes that are ended, and checked to leave nothing behind, when the test ends."""
    started: list[Process] = []

    def start(
        command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Process:
        output_file = tmp_path / f"process-{len(started)}.log"
        started.append(Process(command, cwd=cwd or tmp_path, output_file=output_file, env=env))
        return started[-1]

    yield start
    end_all(started)


@pytest.fixture
def worker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """A factory of running workers: ``worker("high", "default", "-w", "2", executors=2)``.

    It returns when so many executors are ready, with ``wait=False`` at once. All are stopped when the test
    ends, and checked to leave nothing behind; their output is part of a failure's report.
    """
    started: list[WorkerProcess] = []

    def start(
        *arguments: str,
        executors: int = 1,
        url: str | None = None,
        env: Mapping[str, str] | None = None,
        wait: bool = True,
        through: Sequence[str] = (),
    ) -> WorkerProcess:
        directory = tmp_path / f"worker-{len(started)}"
        url = url or request.getfixturevalue("redis_url")
        started.append(WorkerProcess(*arguments, url=url, directory=directory, env=env, through=through))
        return started[-1].wait_ready(executors) if wait else started[-1]

    yield start
    end_all(started)


@pytest.fixture
def run_script(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Save a text as a file and run it as a driver (its code is `__main__`); a failing one fails the test."""
    numbers = itertools.count()

    def run(
        text: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = 30.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        script = (cwd or tmp_path) / f"driver_{next(numbers)}.py"
        script.write_text(textwrap.dedent(text))
        done = subprocess.run(
            [sys.executable, str(script), *arguments],
            cwd=cwd or tmp_path,
            env=clean_environment({"ENVQ_URL": request.getfixturevalue("redis_url")} | dict(env or {})),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode != 0:
            pytest.fail(f"the driver ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    return run


def end_all(processes: Sequence[Process]) -> None:
    """End all in reverse order and print what they wrote; raise the first failure when all have ended."""
    failures: list[AssertionError] = []
    for process in reversed(processes):
        try:
            process.end()
        except AssertionError as failure:
            failures.append(failure)
        print(f"--- output of {process}\n{process.output}")
    if failures:
        raise failures[0]
