"""One request is warm, a second one is cold."""

from __future__ import annotations

import signal

import pytest

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


def test_other_signals_do_not_stop(clock: Clock) -> None:
    stopping = Stopping(None, clock)
    assert stopping.take(signal.SIGHUP) == ""
    assert not stopping.asked
