"""What people see of the demo: sections while it runs, then every claim with what was counted."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from rich import box
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from envq.cli.demonstration import pictures
from envq.cli.demonstration.claims import Claim, duration, seconds_per_job_and_once
from envq.cli.demonstration.ledger import Book, Entry, Ledger
from envq.cli.demonstration.stage import SCRIPTS, Stage

CHART_WIDTH = 54
BAR_WIDTH = 40
VERSION_COLOURS = {1: "cyan", 2: "magenta"}


class Show:
    """Prints to one console, which may be a terminal, a file, or nothing."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @property
    def watched(self) -> bool:
        """Whether somebody may be looking while it runs."""
        return self._console.is_terminal and not self._console.quiet

    def opening(self, stage: Stage) -> None:
        """What runs where."""
        self._console.print(Text("envq demo: objects made once in every worker, clean for every job\n", style="bold"))
        rows = [
            ("server", f"{stage.url}, embedded, process {stage.server_pid}"),
            ("worker", f"envq worker --workers {stage.executors}, process {stage.worker.pid}"),
            ("", f"started in {stage.folder}, an empty folder"),
            ("drivers", f"pong.py and digits.py, run as __main__, from {SCRIPTS}"),
        ]
        self._print_facts(rows)

    @contextmanager
    def section(
        self, title: str, about: str, draw: Callable[[], RenderableType]
    ) -> Generator[Callable[[], None], None, None]:
        """A headline, and below it a picture that changes while the block runs; yields what redraws it."""
        self._headline(title)
        self._console.print(Text(f"{about}\n", style="dim"))
        if not self.watched:
            yield lambda: None
            self._console.print(draw())
            return
        with Live(console=self._console, auto_refresh=False) as live:
            yield lambda: live.update(draw(), refresh=True)
            live.update(draw(), refresh=True)

    def games(self, book: Book) -> RenderableType:
        """The game of each executor as it stands."""
        coloured = self._console.color_system is not None
        panels = [
            Panel(pictures.game(picture, coloured=coloured), title=f"executor {pid}", box=box.SQUARE, expand=False)
            for pid, picture in book.screens().items()
        ]
        return Group(Columns(panels), Text(_so_far(book.read())))

    def timeline(self, ledger: Ledger) -> RenderableType:
        """Jobs over time, coloured by the version of the value that they found."""
        return Group(*_gallery(ledger), *_chart(ledger), Text(), Text(_so_far(ledger)), *_savings(ledger))

    def verdict(self, claims: Sequence[Claim], seconds: float) -> None:
        """Each promise, kept or broken, with its evidence; then the sum of it."""
        self._headline("What was promised, and what the demo's own code counted")
        self._console.print(_claims_table(claims))
        self._console.print(_sum_of(claims, seconds))

    def last_words(self, name: str, lines: Sequence[str]) -> None:
        """The end of a failed process's output."""
        self._console.print(Text(f"\n{name} wrote at last:", style="bold red"))
        for line in lines:
            self._console.print(Text(f"  {line}"), soft_wrap=True)

    def _headline(self, title: str) -> None:
        self._console.print()
        self._console.rule(Text(title, style="bold"), align="left", characters="─")

    def _print_facts(self, rows: Sequence[tuple[str, str]]) -> None:
        for name, fact in rows:
            self._console.print(Text(f"  {name:<8} ", style="bold").append(fact, style="not bold"), soft_wrap=True)


def _so_far(ledger: Ledger) -> str:
    """Counts that grow while it runs."""
    parts = [f"{len(ledger.of('job')):,} jobs", f"{len(ledger.dirty):,} found it dirty"]
    if ledger.steps:
        parts.insert(0, f"{ledger.steps.total():,} steps")
    if broke := len(ledger.of("sabotage")):
        parts.append(f"{broke} more broke it on purpose")
    return ", ".join(parts)


def _gallery(ledger: Ledger) -> list[RenderableType]:
    """Some of the digits, and what the jobs read."""
    found = ledger.fact("gallery", "pictures", [])
    if not found:
        return []
    digits = [pictures.digit(pixels) for pixels in found]
    lines = ["  ".join(parts) for parts in zip(*digits, strict=True)]
    answers = "  ".join(f"{answer[:1]:^8}" for answer in ledger.fact("gallery", "answers"))
    return [*(Text(line, style="white") for line in lines), Text(answers, style="bold"), Text()]


def _chart(ledger: Ledger) -> list[RenderableType]:
    """Jobs over time: a line for each version of the value that they found, and marks for what happened to it."""
    jobs = ledger.of("job")
    if len(jobs) < 2:
        return [Text("one is made here to compare with, and one in each executor ...")]
    start, end = jobs[0].at, max(job.at for job in jobs)
    lines = [
        Text(f"version {version} ")
        .append(_sparkline(found, start, end), VERSION_COLOURS.get(version))
        .append(f" {len(found):,} jobs")
        for version, found in _times_by_version(jobs).items()
    ]
    marks = _marks(ledger, start, end)
    legend = f"{'':10}✗ jobs broke it   ▲ version 2 declared   {end - start:.1f} s in all"
    return [*lines, Text(f"{'':10}{marks}", style="bold"), Text(legend, style="dim")]


def _times_by_version(jobs: Sequence[Entry]) -> dict[int, list[float]]:
    versions = sorted({job.facts["version"] for job in jobs})
    return {version: [job.at for job in jobs if job.facts["version"] == version] for version in versions}


def _sparkline(times: Sequence[float], start: float, end: float) -> str:
    return pictures.sparkline(pictures.buckets(times, start, end, CHART_WIDTH))


def _marks(ledger: Ledger, start: float, end: float) -> str:
    broke, declared = (
        pictures.buckets([entry.at for entry in ledger.of(what)], start, end, CHART_WIDTH)
        for what in ("sabotage", "declared")
    )
    return "".join("▲" if new else "✗" if broken else " " for broken, new in zip(broke, declared, strict=True))


def _savings(ledger: Ledger) -> list[RenderableType]:
    count = ledger.fact("predictions", "count")
    if not count:
        return []
    executors = len(ledger.executors)
    each, once = seconds_per_job_and_once(ledger, executors)
    return [
        Text(f"\n{count:,} predictions on {executors} executors, if every job made the value"),
        Text(f"{pictures.bar(1.0, BAR_WIDTH)} {duration(each)}", style="red"),
        Text("and as it was, made once in each executor"),
        Text(f"{pictures.bar(once / each, BAR_WIDTH)} {duration(once)}", style="green"),
    ]


def _claims_table(claims: Sequence[Claim]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(width=1)
    table.add_column(overflow="fold")
    for claim in claims:
        table.add_row(_mark(claim), _evidence(claim))
    return table


def _sum_of(claims: Sequence[Claim], seconds: float) -> Text:
    broken = sum(not claim.held for claim in claims)
    if broken:
        return Text(f"{broken} of {len(claims)} promises broken, after {seconds:.0f} s.", style="bold red")
    return Text(f"All {len(claims)} promises held, in {seconds:.0f} s.", style="bold green")


def _mark(claim: Claim) -> Text:
    return Text("✓", style="bold green") if claim.held else Text("✗", style="bold red")


def _evidence(claim: Claim) -> Text:
    text = Text(claim.promise, style="bold" if claim.held else "bold red").append("\n")
    if claim.held:
        return text.append(claim.counted, style="not bold dim")
    return text.append(f"expected: {claim.expected}\ncounted:  {claim.counted}", style="not bold red")
