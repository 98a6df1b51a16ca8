"""`envq demo`, shortened: ends with 0 when every promise held, with 1 when the resets are switched off."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.processes import Process
from support.waiting import eventually

pytestmark = pytest.mark.timeout(240)
DEMO = (sys.executable, "-m", "envq", "demo", "--fast")
PATIENCE_SECONDS = 200.0


@pytest.fixture
def demo(start_process: Callable[..., Process]) -> Callable[..., Process]:
    """Starts the demo; when the test ends, nothing it started may be left."""
    return lambda *arguments: start_process([*DEMO, *arguments])


def figures(process: Process) -> dict[str, Any]:
    """What it printed with --json."""
    found: dict[str, Any] = json.loads(process.output)
    return found


def broken(found: dict[str, Any]) -> set[str]:
    return {claim["promise"] for claim in found["claims"] if not claim["held"]}


def test_every_promise_holds_and_is_counted(demo: Callable[..., Process]) -> None:
    process = demo("--json")
    code = process.wait(PATIENCE_SECONDS)
    found = figures(process)
    assert broken(found) == set()
    assert code == 0
    assert found["held"] is True
    assert len(found["pong"]["executors"]) == 2
    assert found["pong"]["executors"] == found["digits"]["executors"]
    assert found["pong"]["dirty"] == found["digits"]["dirty"] == 0
    assert found["pong"]["sabotages"] == 4
    assert found["digits"]["sabotages"] == 4
    assert sum(found["pong"]["steps"].values()) >= 300
    assert found["digits"]["predictions"]["same"] == found["digits"]["predictions"]["count"] == 500


def test_without_resets_it_finds_the_dirt_and_ends_with_1(demo: Callable[..., Process]) -> None:
    process = demo("--without-reset")
    code = process.wait(PATIENCE_SECONDS)
    assert code == 1, process.output
    assert "✗  every job found the game as it was made" in process.output
    assert "✗  every job found the classifier as it was made" in process.output
    assert "✓  Pong-v0 was made once in each process" in process.output
    assert "promises broken" in process.output


def test_interrupted_it_leaves_nothing_behind(demo: Callable[..., Process], tmp_path: Path) -> None:
    process = demo()
    eventually(lambda: "1  Pong" in process.output or not process.running, timeout=60.0)
    process.send(signal.SIGINT)
    assert process.wait(30.0) == 130, process.output
    eventually(lambda: not process.descendants(), timeout=10.0)
