"""The ledger: ends that one process notes the other reads whole, also after a kill."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.context import BaseContext

import pytest

from envq.workers.ledger import CAPACITY, Ledger


@pytest.fixture
def context() -> BaseContext:
    return multiprocessing.get_context("fork")


@pytest.fixture
def ledger(context: BaseContext) -> Ledger:
    return Ledger(context)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_another_process_noted_is_read_here_after_its_end(method: str) -> None:
    context = multiprocessing.get_context(method)
    ledger = Ledger(context)
    ledger.begin(6, 9, [b"older"])
    for target, arguments in ((ledger.begin, (7, 3, [b"one"])), (ledger.note, (b"two" * 100,))):
        process = context.Process(target=target, args=arguments)
        process.start()
        process.join()
        assert process.exitcode == 0
        if target == ledger.begin:
            ledger.begin(7, 3, [b"one"])  # here as well, for the next process to go on from
    view = ledger.read()
    assert (view.trip, view.held, view.ends) == (7, 3, [b"one", b"two" * 100])
    assert ledger.shared == (7, True)


def _note(ledger: Ledger, trip: int, ends: list[bytes]) -> None:
    ledger.begin(trip, len(ends))
    for end in ends:
        assert ledger.note(end)


def test_a_fresh_ledger_says_nothing(ledger: Ledger) -> None:
    assert ledger.read().ends == []
    assert ledger.shared == (0, False)
    assert not ledger.seized


def test_what_is_stored_is_forgotten_and_what_is_kept_stays(ledger: Ledger) -> None:
    _note(ledger, 1, [b"a", b"b"])
    ledger.begin(2, 1, [b"b"])
    assert ledger.read().ends == [b"b"]
    ledger.note(b"c")
    assert ledger.read().ends == [b"b", b"c"]
    ledger.begin(2, 1)
    assert ledger.read().ends == []
    assert ledger.shared == (2, False)
    ledger.begin(3, 2)
    assert ledger.shared == (3, True), "one runs, one waits"


def test_an_end_without_room_is_refused_and_harms_none(ledger: Ledger) -> None:
    _note(ledger, 1, [b"x" * (CAPACITY // 2)])
    assert not ledger.note(b"y" * (CAPACITY // 2))
    assert ledger.note(b"z")
    assert [end[:1] for end in ledger.read().ends] == [b"x", b"z"]
    ledger.begin(2, 1)
    largest = CAPACITY - 4
    assert ledger.note(b"y" * largest)
    assert not ledger.note(b"")
    assert len(ledger.read().ends[0]) == largest


def test_it_is_seized_until_the_next_round_trip(ledger: Ledger) -> None:
    ledger.begin(4, 2)
    ledger.seize(3)
    assert not ledger.seized, "for a trip that is over"
    ledger.seize(4)
    ledger.note(b"a")
    assert ledger.seized
    ledger.begin(5, 2)
    assert not ledger.seized


def test_a_copy_of_the_process_writes_into_memory_of_its_own(ledger: Ledger, context: BaseContext) -> None:
    _note(ledger, 1, [b"a"])
    process = context.Process(target=_detach_and_note, args=(ledger,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert ledger.read().ends == [b"a"]


def _detach_and_note(ledger: Ledger) -> None:
    ledger.detach()
    ledger.begin(9, 9)
    assert ledger.note(b"b")


def test_a_reader_never_sees_ends_of_two_rounds(ledger: Ledger, context: BaseContext) -> None:
    """Also where one round trip begins several times, because jobs with dependents are stored one by one."""
    process = context.Process(target=_write_rounds, args=(ledger, 6000))
    process.start()
    torn = views = 0
    while process.is_alive():
        view = ledger.read()
        views += 1
        torn += len({content for end in view.ends for content in (end[:4], end[-4:])}) > 1
        torn += any(int.from_bytes(end[:4], "little") // 3 != view.trip for end in view.ends)
    process.join()
    assert views > 0
    assert torn == 0


def _write_rounds(ledger: Ledger, rounds: int) -> None:
    for number in range(rounds):
        tag = number.to_bytes(4, "little")
        ledger.begin(number // 3, 2, [tag * 500])
        for size in range(1, 30):
            ledger.note(tag * size * (1 + number % 7))


def test_a_kill_at_any_moment_leaves_whole_ends(context: BaseContext) -> None:
    for pause in range(10):
        ledger = Ledger(context)
        ours, theirs = context.Pipe()
        process = context.Process(target=_write_for_ever, args=(ledger, theirs))
        process.start()
        ours.recv_bytes()
        while ledger.read().trip < 1 + pause * 37:
            pass
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        view = ledger.read()
        assert [int.from_bytes(end[:4], "little") for end in view.ends] == [*range(len(view.ends))]
        assert all(end == end[:4] * (len(end) // 4) for end in view.ends)
        ours.close()
        theirs.close()


def _write_for_ever(ledger: Ledger, control: multiprocessing.connection.Connection) -> None:
    control.send_bytes(b"on")
    trip = 0
    while True:
        trip += 1
        ledger.begin(trip, 2)
        for number in range(20):
            ledger.note(number.to_bytes(4, "little") * (number + 1))


def test_what_is_kept_is_never_written_over_what_a_reader_still_sees(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trip that turned and was lost leaves ends in both areas; the process may be killed at any moment."""
    ledger.begin(1, 4)
    ledger.note(b"first")
    assert ledger.turn(2, 4)
    ledger.note(b"second")
    with monkeypatch.context() as killed:
        killed.setattr(ledger, "_publish", lambda: None)
        ledger.begin(3, 1, [b"kept" * 10])
    assert ledger.read().ends == [b"first", b"second"]


def test_what_is_kept_stays_also_where_no_area_is_free_for_it(ledger: Ledger) -> None:
    ledger.begin(1, 4)
    ledger.note(b"first")
    assert ledger.turn(2, 4)
    ledger.note(b"second")
    ledger.begin(3, 1, [b"second"])
    view = ledger.read()
    assert view.trip == 3
    assert b"second" in view.ends
    ledger.begin(3, 1)
    assert ledger.read().ends == []
    ledger.note(b"third")
    assert ledger.read().ends == [b"third"]
