"""One request is warm, a second one is cold."""

from __future__ import annotations

import signal

import pytest

from envq.workers.supervision.signals import hangup_stops
from envq.workers.supervision.stopping import EXIT_COLD, SAME_REQUEST_S, Stopping


class Clock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_first_request_is_warm(clock: Clock) -> None:
    stopping = Stopping(None, clock)
    assert stopping.take(signal.SIGTERM)
    clock.now += 1e6
    assert (stopping.asked, stopping.cold, stopping.exit_code) == (True, False, 0)


def test_second_request_is_cold_and_shows_in_the_exit_code(clock: Clock) -> None:
    stopping = Stopping(None, clock)
    stopping.take(signal.SIGINT)
    clock.now += 2 * SAME_REQUEST_S
    stopping.take(signal.SIGTERM)
    assert (stopping.cold, stopping.exit_code) == (True, EXIT_COLD)


def test_signal_that_a_wrapper_passes_on_does_not_count_twice(clock: Clock) -> None:
    stopping = Stopping(None, clock)
    stopping.take(signal.SIGINT)
    clock.now += SAME_REQUEST_S / 2
    stopping.take(signal.SIGINT)
    assert not stopping.cold


def test_grace_turns_a_warm_stop_cold(clock: Clock) -> None:
    stopping = Stopping(5.0, clock)
    assert not stopping.cold
    stopping.ask()
    clock.now += 4.9
    stopping.ask()
    assert not stopping.cold
    clock.now += 0.1
    assert (stopping.cold, stopping.exit_code) == (True, 0)


def test_a_closed_terminal_stops_warmly_however_often_it_is_told(clock: Clock) -> None:
    stopping = Stopping(None, clock, hangup_stops=True)
    assert "terminal is closed" in stopping.take(signal.SIGHUP)
    clock.now += 1e6
    stopping.take(signal.SIGHUP)
    assert (stopping.asked, stopping.cold, stopping.exit_code) == (True, False, 0)


@pytest.mark.parametrize(
    ("terminals", "ignored", "stops"),
    [({0, 1, 2}, False, True), ({2}, False, True), ({1}, False, False), (set[int](), False, False), ({0}, True, False)],
)
def test_sighup_is_about_the_terminal_where_there_is_one(
    terminals: set[int], ignored: bool, stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.isatty", terminals.__contains__)
    monkeypatch.setattr("signal.getsignal", lambda _: signal.SIG_IGN if ignored else signal.SIG_DFL)
    assert hangup_stops() is stops


def test_other_signals_do_not_stop(clock: Clock) -> None:
    stopping = Stopping(None, clock)
    assert stopping.take(signal.SIGHUP) == ""
    assert not stopping.asked
