"""``envq demo``: runs the drivers for real, counts what they left in Redis, and judges every promise."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any, Final, cast

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
    _check_extras()
    show = Show(_console(options))
    signals.unwind_on_sigterm()
    try:
        outcome = _perform(show, options)
    except signals.Stopped:
        return mistakes.EXIT_INTERRUPTED
    if options.json:
        print_json(_figures(outcome))
    return mistakes.EXIT_OK if outcome.held else mistakes.EXIT_UNEXPECTED


def _perform(show: Show, options: DemoOptions) -> Outcome:
    started = time.monotonic()
    with staged(options.workers) as stage:
        show.opening(stage)
        pong = _play_pong(show, stage, options)
        digits = _play_digits(show, stage, options)
        claims = all_claims(pong, digits, stage.backstage())
        outcome = Outcome(pong, digits, claims, time.monotonic() - started)
        show.verdict(claims, outcome.seconds)
        _explain_failures(show, stage)
    return outcome


def _play_pong(show: Show, stage: Stage, options: DemoOptions) -> Ledger:
    book = Book(stage.connection, "pong")
    arguments = ["--steps", "60", "--rallies", "4"] if options.fast else []
    if show.watched:
        arguments += ["--pause", str(WATCHING_PAUSE_S)]
    about = 'gymnasium.make("Pong-v0") once in each process, at its start again for each job'
    with show.section("1  Pong, the example that the idea came with", about, lambda: show.games(book)) as redraw:
        stage.play("pong", arguments + _reset_flag(options), redraw)
    return book.read()


def _play_digits(show: Show, stage: Stage, options: DemoOptions) -> Ledger:
    book = Book(stage.connection, "digits")
    arguments = ["--predictions", "500", "--seconds", "1.1"] if options.fast else []
    about = "Jobs use it, break it, and go on while a second version of it takes over."
    title = "2  A classifier with an open database: slow to make, impossible to pickle"
    with show.section(title, about, lambda: show.timeline(book.read())) as redraw:
        stage.play("digits", arguments + _reset_flag(options), redraw)
    return book.read()


def _explain_failures(show: Show, stage: Stage) -> None:
    """Where a process of ours failed, its own words say more than the counts."""
    failed = [name for name, code in stage.driver_codes.items() if code != 0]
    for name in [*failed, "worker"] if failed or not stage.worker_runs else []:
        show.last_words(name, stage.last_words(name))


def _reset_flag(options: DemoOptions) -> list[str]:
    return ["--without-reset"] if options.without_reset else []


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


def _console(options: DemoOptions) -> Console:
    if hasattr(sys.stdout, "reconfigure"):
        cast(Any, sys.stdout).reconfigure(errors="replace")  # a log may take no block characters
    return Console(quiet=options.json, highlight=False)


def _check_extras() -> None:
    missing = [name for module, name in EXTRAS.items() if find_spec(module) is None]
    if missing:
        raise ConfigurationError(f'the demo needs {", ".join(missing)}: pip install "envq[demo]"')
