"""The judge of `envq demo`: every promise it makes can be broken, and the pictures it draws."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from envq.cli import demo
from envq.cli.demonstration import pictures
from envq.cli.demonstration.claims import Backstage, Claim, all_claims
from envq.cli.demonstration.ledger import Entry, Ledger, parse
from envq.cli.options import DemoOptions
from envq.errors import ConfigurationError

WORKER, DRIVER, ONE, TWO = 10, 20, 11, 12
BACKSTAGE = Backstage(
    executors=2,
    driver_codes={"pong": 0, "digits": 0},
    worker_ran=True,
    worker_pid=WORKER,
    files=(),
)


def entry(what: str, pid: int = DRIVER, **facts: Any) -> Entry:
    return Entry(what, pid, WORKER, 0.0, facts)


def good_pong() -> list[Entry]:
    return [
        *(entry("build", pid, found="clean") for pid in (DRIVER, ONE, TWO)),
        *(each for pid in (ONE, TWO) for each in (entry("job", pid, found="clean"), entry("steps", pid, count=150))),
        entry("sabotage", ONE, deed="cheat", needs_rebuild=True),
        entry("build", ONE, found="clean"),
        entry("job", ONE, found="clean"),
        entry("sabotaged", jobs=1, raised=1),
        entry("finished", jobs=3, failed=0),
    ]


def good_digits() -> list[Entry]:
    return [
        entry("direct", seconds=2.0, refusal="cannot pickle it"),
        *(entry("build", pid, found="clean", version=1) for pid in (ONE, TWO)),
        entry("ready", seconds=3.0),
        *(entry("job", pid, found="clean", version=1, phase="predictions") for pid in (ONE, TWO) for _ in range(50)),
        entry("predictions", count=100, seconds=1.0, same=100, right_by_queue=95, right_directly=95),
        entry("sabotage", TWO, deed="hang_up", needs_rebuild=True),
        entry("build", TWO, found="clean", version=1),
        entry("job", TWO, found="clean", version=1, phase="sabotage"),
        entry("sabotaged", jobs=1, raised=1),
        *(entry("job", pid, found="clean", version=1, phase="before") for pid in (ONE, TWO)),
        *(entry("build", pid, found="better", version=2) for pid in (ONE, TWO)),
        *(entry("job", pid, found="better", version=2, phase="after") for pid in (ONE, TWO)),
        entry("finished", jobs=105, failed=0),
    ]


def broken(
    pong: Sequence[Entry] | None = None, digits: Sequence[Entry] | None = None, backstage: Backstage = BACKSTAGE
) -> set[str]:
    claims = judged(good_pong() if pong is None else pong, good_digits() if digits is None else digits, backstage)
    return {claim.promise for claim in claims if not claim.held}


def judged(pong: Sequence[Entry], digits: Sequence[Entry], backstage: Backstage) -> list[Claim]:
    return all_claims(Ledger(tuple(pong)), Ledger(tuple(digits)), backstage)


def changed(entries: list[Entry], chosen: Callable[[Entry], bool], **facts: Any) -> list[Entry]:
    """The entries, with other facts in the first one chosen."""
    at = next(number for number, each in enumerate(entries) if chosen(each))
    entries[at] = replace(entries[at], facts=entries[at].facts | facts)
    return entries


def without(entries: list[Entry], chosen: Callable[[Entry], bool]) -> list[Entry]:
    return [each for each in entries if not chosen(each)]


def test_all_promises_hold_where_all_went_well() -> None:
    assert broken() == set()


def test_nothing_holds_by_default_but_what_needs_no_driver() -> None:
    nothing = replace(BACKSTAGE, driver_codes={})
    kept = {claim.promise for claim in judged([], [], nothing) if claim.held}
    assert kept == {"the worker's folder holds none of this code"}


@pytest.mark.parametrize(
    ("promise", "pong"),
    [
        (
            "Pong-v0 was made once in each process: the driver and the executors",
            [entry("build", ONE, found="clean"), *good_pong()],
        ),
        (
            "Pong-v0 was made once in each process: the driver and the executors",
            without(good_pong(), lambda each: each.what == "build" and each.pid == DRIVER),
        ),
        (
            "several hundred steps were played by jobs on all executors",
            changed(good_pong(), lambda each: each.what == "steps", count=10),
        ),
        (
            "several hundred steps were played by jobs on all executors",
            [each if each.what != "steps" else replace(each, pid=ONE) for each in good_pong()],
        ),
        (
            "every job found the game as it was made",
            changed(good_pong(), lambda each: each.what == "job", found="dirty"),
        ),
        (
            "also right after jobs that broke the game on purpose and raised",
            [*good_pong()[:-3], entry("job", ONE, found="dirty"), *good_pong()[-2:]],
        ),
        (
            "also right after jobs that broke the game on purpose and raised",
            changed(good_pong(), lambda each: each.what == "sabotaged", raised=0),
        ),
        (
            "also right after jobs that broke the game on purpose and raised",
            [*good_pong(), entry("sabotage", TWO, deed="walk_away", needs_rebuild=False)],
        ),
        (
            "the game was made anew only where nothing else could help",
            [*good_pong(), entry("build", TWO, found="clean")],
        ),
        (
            "no job failed but those that meant to",
            changed(good_pong(), lambda each: each.what == "finished", failed=1),
        ),
        (
            "nothing was restarted: the same executors, below the same worker, to the end",
            [*good_pong(), entry("job", 13, found="never made")],
        ),
        (
            "nothing was restarted: the same executors, below the same worker, to the end",
            [replace(each, parent=99) for each in good_pong()],
        ),
    ],
)
def test_each_promise_about_pong_can_be_broken(promise: str, pong: list[Entry]) -> None:
    assert promise in broken(pong=pong)


@pytest.mark.parametrize(
    ("promise", "digits"),
    [
        (
            "the classifier takes over a second to make, and cannot be pickled",
            changed(good_digits(), lambda each: each.what == "direct", refusal=""),
        ),
        (
            "the classifier takes over a second to make, and cannot be pickled",
            changed(good_digits(), lambda each: each.what == "direct", seconds=0.9),
        ),
        ("it was made once in each executor", [entry("build", ONE, found="clean", version=1), *good_digits()]),
        (
            "predictions on held-out digits are as good as direct ones",
            changed(good_digits(), lambda each: each.what == "predictions", same=99),
        ),
        (
            "predictions on held-out digits are as good as direct ones",
            changed(good_digits(), lambda each: each.what == "predictions", right_by_queue=94),
        ),
        (
            "every job found the classifier as it was made",
            changed(good_digits(), lambda each: each.what == "job", found="dirty"),
        ),
        (
            "the classifier was made anew only where nothing else could help",
            [*good_digits(), entry("build", ONE, found="clean", version=1)],
        ),
        (
            "making it once saves the time of making it for every job",
            changed(good_digits(), lambda each: each.what == "predictions", seconds=50.0),
        ),
        (
            "a second version was taken over by the same processes",
            without(good_digits(), lambda each: each.facts.get("version") == 2 and each.pid == TWO),
        ),
        (
            "a second version was taken over by the same processes",
            [*good_digits(), entry("build", TWO, found="better", version=2)],
        ),
        (
            "jobs enqueued once it was declared got the new version, every one",
            [*good_digits(), entry("job", ONE, found="clean", version=1, phase="after")],
        ),
    ],
)
def test_each_promise_about_the_classifier_can_be_broken(promise: str, digits: list[Entry]) -> None:
    assert promise in broken(digits=digits)


@pytest.mark.parametrize(
    ("promise", "backstage"),
    [
        ("the driver pong.py ran to its end", replace(BACKSTAGE, driver_codes={"pong": 1, "digits": 0})),
        ("the driver digits.py ran to its end", replace(BACKSTAGE, driver_codes={"pong": 0})),
        (
            "nothing was restarted: the same executors, below the same worker, to the end",
            replace(BACKSTAGE, worker_ran=False),
        ),
        ("the worker's folder holds none of this code", replace(BACKSTAGE, files=("pong.py",))),
    ],
)
def test_each_promise_about_the_processes_can_be_broken(promise: str, backstage: Backstage) -> None:
    assert broken(backstage=backstage) == {promise}


def test_missing_extras_are_one_line_that_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda module: None)
    with pytest.raises(ConfigurationError, match=r'needs gymnasium, ale-py, scikit-learn: pip install "envq\[demo\]"$'):
        demo.run(DemoOptions(2, json=False, fast=False, without_reset=False))


def test_an_entry_is_read_as_the_drivers_write_it() -> None:
    line = json.dumps({"what": "job", "pid": 1, "parent": 2, "at": 3.5, "found": "clean"}).encode()
    assert parse(line) == Entry("job", 1, 2, 3.5, {"found": "clean"})


def test_a_game_is_readable_without_colours() -> None:
    side = pictures.SIDE
    pixels = [(0, 0, 0)] * side * side
    pixels[0] = pixels[1] = pixels[side + 1] = pixels[side + 2] = (255, 255, 255)
    drawn = pictures.game(b"".join(bytes(pixel) for pixel in pixels), coloured=False).plain.split("\n")
    assert len(drawn) == side // 2
    assert drawn[0] == "▀█▄" + " " * (side - 3)


def test_a_handwritten_digit_becomes_four_lines_of_eight() -> None:
    assert pictures.digit([16] * 32 + [0] * 32) == ["█" * 8, "█" * 8, " " * 8, " " * 8]


def test_a_sparkline_shows_that_something_is_there_and_nothing_where_nothing_is() -> None:
    assert pictures.sparkline([0, 1, 50, 100]) == " ▁▄█"
    assert pictures.sparkline([]) == ""


def test_a_bar_is_never_quite_nothing_and_never_too_long() -> None:
    assert pictures.bar(1.0, 4) == "████"
    assert pictures.bar(0.0001, 4) == "▏"
    assert pictures.bar(0.5, 3) == "█▌"


def test_times_fall_into_equal_parts() -> None:
    assert pictures.buckets([0.0, 1.0, 9.9, 10.0, 11.0], 0.0, 10.0, 5) == [2, 0, 0, 0, 2]
    assert pictures.buckets([3.0, 3.0], 3.0, 3.0, 2) == [2, 0]
