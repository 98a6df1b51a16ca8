"""How a process ended, in words."""

from __future__ import annotations

import platform
import signal

import pytest

from envq.workers.exits import describe_exit


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV])
@pytest.mark.parametrize(("system", "hinted"), [("Darwin", True), ("Linux", False)])
def test_a_crash_on_macos_names_the_start_method(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, system: str, hinted: bool
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    text = describe_exit(-number, killed_by_us=False)
    assert text.startswith(f"was killed by {number.name}")
    assert ("--start-method spawn" in text) == hinted


def test_a_kill_that_was_ours_needs_no_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert describe_exit(-signal.SIGSEGV, killed_by_us=True) == "was killed by SIGSEGV"
    assert describe_exit(-signal.SIGKILL, killed_by_us=True) == "was killed by SIGKILL"
