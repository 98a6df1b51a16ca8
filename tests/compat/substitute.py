"""A pytest plugin: RQ's tests get envq's classes where they import RQ's, and a server of their own."""

from __future__ import annotations

import functools
import importlib
import json
import os
import pkgutil
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import rq
from support.servers import BINARIES, Server

import envq
from compat import worker
from envq.driver.client import swap_default

WORKERS = {
    "rq.Worker": worker.Worker,
    "rq.worker.Worker": worker.Worker,
    "rq.SimpleWorker": worker.SimpleWorker,
    "rq.worker.SimpleWorker": worker.SimpleWorker,
}
CLIENTS = {
    "rq.Queue": envq.Queue,
    "rq.queue.Queue": envq.Queue,
    "rq.job.Job": envq.Job,
}
SUBSTITUTES = {"envq": WORKERS | CLIENTS, "envq-workers": WORKERS, "envq-clients": CLIENTS, "rq": {}}
PART = "what took part"  # the property of a report: "worker", "client", or nothing of envq


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--suite-server", choices=sorted(BINARIES), default="valkey")
    parser.addoption("--suite-report", type=Path, help="where to write what became of each test, as JSON")
    parser.addoption("--suite-left-out", action="append", default=[], help="a pattern of tests to skip")
    parser.addoption("--suite-classes", choices=sorted(SUBSTITUTES), default="envq", help="whose classes the tests get")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Report(config.getoption("--suite-report")))
    if not config.getoption("numprocesses", None):  # with processes, each of them has its own server
        config.pluginmanager.register(OwnServer(config.getoption("--suite-server")))
    config.pluginmanager.register(Substitution(SUBSTITUTES[config.getoption("--suite-classes")]))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if any(fnmatchcase(item.nodeid, pattern) for pattern in config.getoption("--suite-left-out")):
            item.add_marker(pytest.mark.skip(reason="left out"))


class _Made:
    """Counts the queues and jobs of envq's classes that tests make."""

    def __init__(self) -> None:
        self.count = 0

    def watch(self, cls: type) -> None:
        make = cls.__init__

        @functools.wraps(make)
        def counted(made: object, *args: Any, **options: Any) -> None:
            self.count += 1
            make(made, *args, **options)

        cls.__init__ = counted  # type: ignore[misc]


MADE = _Made()


class OwnServer:
    """RQ's tests look for an empty database, so two processes must not share a server."""

    def __init__(self, name: str) -> None:
        binary = BINARIES[name]()
        if binary is None:
            pytest.exit(f"{name}: this server is not installed here", returncode=2)
        self._server = Server(binary).start()
        os.environ["RQ_SUITE_PORT"] = str(self._server.port)

    def pytest_unconfigure(self) -> None:
        self._server.remove()


class Substitution:
    """Only what the test modules import is replaced: RQ's own modules go on with their own classes."""

    def __init__(self, substitutes: dict[str, type]) -> None:
        self._substitutes = substitutes

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        for module in pkgutil.walk_packages(rq.__path__, "rq."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
        if "rq.Queue" in self._substitutes:
            worker.EnvqWork.queue_class, worker.EnvqWork.job_class = envq.Queue, envq.Job
            MADE.watch(envq.Queue)
            MADE.watch(envq.Job)
        patches = [mock.patch(name, substitute) for name, substitute in self._substitutes.items()]
        for patch in patches:
            patch.start()
        try:
            return (yield)
        finally:
            for patch in patches:
                patch.stop()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        runs, made = worker.RUNS.value, MADE.count
        swap_default(None)
        try:
            return (yield)
        finally:
            part = "worker" if worker.RUNS.value > runs else "client" if MADE.count > made else ""
            item.user_properties.append((PART, part))


class Report:
    """What became of each test: the worst of its phases and subtests."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._tests: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self._tests.setdefault(report.nodeid, {"outcome": "passed", "error": "", "part": ""})
        test["part"] = dict(report.user_properties).get(PART) or test["part"]
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            test.update(outcome="failed", error=crash.message if crash else report.longreprtext[-500:])
        elif report.skipped and test["outcome"] == "passed":
            test["outcome"] = "skipped"

    def pytest_sessionfinish(self) -> None:
        if self._path is not None and "PYTEST_XDIST_WORKER" not in os.environ:
            self._path.write_text(json.dumps(self._tests, indent=1))
