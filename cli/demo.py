"""``envq demo``: runs the drivers for real, counts what they left in Redis, and judges every promise."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Final

from rich.console import Console

from envq.cli import mistakes, signals
from envq.cli.demonstration.claims import Claim, all_claims
from envq.cli.demonstration.ledger import Book, Ledger
from envq.cli.demonstration.show import Show
from envq.cli.demonstration.stage import Stage, staged
from envq.cli.options import DemoOptions
from envq.cli.printing import print_json
from envq.errors import ConfigurationError

EXTRAS: Final = {"gymnasium": "gymnasium", "ale_py": "ale-py", "sklearn": "scikit-learn"}
WATCHING_PAUSE_S: Final = 0.03  # between two steps of a game that somebody looks at


@dataclass(frozen=True)
class Flags:
    """The demo's own flags."""

    json: bool
    fast: bool
    without_reset: bool


@dataclass(frozen=True)
class Outcome:
    """What was counted, and what it says about the promises."""

    pong: Ledger
    digits: Ledger
    claims: list[Claim]
    seconds: float

    @property
    def held(self) -> bool:
        """Whether every promise was kept."""
        return all(claim.held for claim in self.claims)


def run(options: DemoOptions) -> int:
    """Run the demo; 0 only if every promise held."""
    flags = _flags(options.arguments)
    _check_extras()
    show = Show(Console(quiet=flags.json, highlight=False))
    signals.unwind_on_sigterm()
    try:
        outcome = _perform(show, options.workers, flags)
    except signals.Stopped:
        return mistakes.EXIT_INTERRUPTED
    if flags.json:
        print_json(_figures(outcome))
    return mistakes.EXIT_OK if outcome.held else mistakes.EXIT_UNEXPECTED


def _perform(show: Show, executors: int, flags: Flags) -> Outcome:
    started = time.monotonic()
    with staged(executors) as stage:
        show.opening(stage)
        pong = _play_pong(show, stage, flags)
        digits = _play_digits(show, stage, flags)
        claims = all_claims(pong, digits, stage.backstage())
        outcome = Outcome(pong, digits, claims, time.monotonic() - started)
        show.verdict(claims, outcome.seconds)
        _explain_failures(show, stage, outcome)
    return outcome


def _play_pong(show: Show, stage: Stage, flags: Flags) -> Ledger:
    book = Book(stage.connection, "pong")
    arguments = ["--steps", "60", "--rallies", "4"] if flags.fast else []
    if show.watched:
        arguments += ["--pause", str(WATCHING_PAUSE_S)]
    about = 'gymnasium.make("Pong-v0") once in each process; every job starts from the first frame.'
    with show.section("1  Pong, the example that the idea came with", about, lambda: show.games(book)) as redraw:
        stage.play("pong", arguments + _reset_flag(flags), redraw)
    return book.read()


def _play_digits(show: Show, stage: Stage, flags: Flags) -> Ledger:
    book = Book(stage.connection, "digits")
    arguments = ["--predictions", "500", "--seconds", "1.5"] if flags.fast else []
    about = "It holds an open database. Jobs use it, break it, and go on while a second version takes over."
    title = "2  A classifier that is slow to make and cannot be pickled"
    with show.section(title, about, lambda: show.timeline(book.read())) as redraw:
        stage.play("digits", arguments + _reset_flag(flags), redraw)
    return book.read()


def _explain_failures(show: Show, stage: Stage, outcome: Outcome) -> None:
    """Where a process of ours failed, its own words say more than the counts."""
    for name, code in stage.driver_codes.items():
        if code != 0:
            show.last_words(f"{name}.py", stage.last_words(name))
    if not outcome.held:
        show.last_words("the worker", stage.last_words("worker"))


def _reset_flag(flags: Flags) -> list[str]:
    return ["--without-reset"] if flags.without_reset else []


def _figures(outcome: Outcome) -> dict[str, object]:
    return {
        "held": outcome.held,
        "seconds": round(outcome.seconds, 1),
        "claims": [asdict(claim) for claim in outcome.claims],
        "pong": _counts(outcome.pong) | {"steps": outcome.pong.steps},
        "digits": _counts(outcome.digits)
        | {name: outcome.digits.facts(name) for name in ("direct", "ready", "predictions")},
    }


def _counts(ledger: Ledger) -> dict[str, object]:
    return {
        "executors": ledger.executors,
        "jobs": len(ledger.of("job")),
        "dirty": len(ledger.dirty),
        "sabotages": len(ledger.of("sabotage")),
        "builds": ledger.builds,
        "forced_builds": ledger.forced,
    }


def _flags(arguments: tuple[str, ...]) -> Flags:
    parser = argparse.ArgumentParser("envq demo", add_help=False)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--without-reset", action="store_true")
    return Flags(**vars(parser.parse_args(arguments)))


def _check_extras() -> None:
    missing = [name for module, name in EXTRAS.items() if find_spec(module) is None]
    if missing:
        raise ConfigurationError(f'the demo needs {", ".join(missing)}: pip install "envq[demo]"')
