"""The harness of the benchmarks drains a real worker; no figure is looked at."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.bench import ENVQ, Bench
from harness.redis_server import RedisServer


@pytest.fixture
def environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What make_venvs.sh would make for envq, out of the interpreter that runs the tests."""
    commands = tmp_path / "envq" / "bin"
    commands.mkdir(parents=True)
    for name, arguments in {"python": "", "envq": "-m envq"}.items():
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PEERS_VENVS", str(tmp_path))


@pytest.mark.parametrize("name", [ENVQ, "envq:variable:trivial"])
@pytest.mark.parametrize("rtt_ms", [0, 1])
@pytest.mark.usefixtures("environments")
def test_every_job_of_a_drain_is_counted_once(name: str, rtt_ms: float, server_binary: Path) -> None:
    with Bench(quick=True) as bench, RedisServer(rtt_ms=rtt_ms, binary=str(server_binary)) as server:
        drained = bench.drain(server, name, 30, fn="sleeper", seconds=0.0)
        assert drained.jobs == 30
        assert drained.commands["evalsha"]


@pytest.mark.usefixtures("environments")
def test_a_producer_measures_its_jobs(server_binary: Path) -> None:
    with Bench(quick=True) as bench, RedisServer(binary=str(server_binary)) as server:
        assert bench.produce(server, ENVQ, "enqueue", n=5)["jobs"] == 25
        assert server.connection("LLEN", "rq:queue:default") == 25
