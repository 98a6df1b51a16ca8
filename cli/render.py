"""Pure: from records to lines, rows and JSON-able values; nothing here reads or prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from envq.cli.readiness import Holder, Readiness
from envq.store.records import Declaration, Event

GAP = "  "
BRIEF = 60
_TRACEBACK = "Traceback (most recent call last):"


@dataclass(frozen=True)
class Banner:
    """What a worker says of itself at its start."""

    version: str
    label: str
    server: str
    durability: str
    url: str
    namespace: str
    queues: Sequence[str]
    executors: int
    scheduler: bool
    burst: bool
    signed: str
    variables: Sequence[Declaration]
    warnings: Sequence[str] = ()


def banner(facts: Banner) -> list[str]:
    """One line a subject."""
    variables = ", ".join(f"{each.name} v{each.version}" for each in facts.variables)
    extras = f"scheduler {'on' if facts.scheduler else 'off'}{', burst' if facts.burst else ''}"
    return [
        f"envq {facts.version}, worker {facts.label}: {plural(facts.executors, 'executor')}, {extras}",
        f"{facts.server} at {facts.url}, namespace {facts.namespace}; {facts.durability}",
        f"queues: {', '.join(facts.queues)}",
        f"variables: {variables or 'none declared for these queues'}",
        *([f"only what is signed is run: {facts.signed}"] if facts.signed else []),
    ]


def event_line(happened: Event) -> str:
    """One event for people; what does not apply is left out."""
    variable = f"{happened.env} v{happened.env_version}" if happened.env_version else happened.env
    took = duration(happened.duration_ms / 1000) if happened.duration_ms else ""
    parts = (happened.at, happened.kind, happened.func, happened.job_id, variable, took, happened.worker)
    line = GAP.join(part for part in parts if part)
    return f"{line}: {happened.detail}" if happened.detail else line


def plural(count: int, noun: str) -> str:
    """``1 executor``, ``2 executors``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def size(count: int) -> str:
    """Bytes for people."""
    if count < 1024:
        return f"{count} B"
    if count < 1024**2:
        return f"{count / 1024:.1f} KiB"
    return f"{count / 1024**2:.1f} MiB" if count < 1024**3 else f"{count / 1024**3:.1f} GiB"


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 0.001:
        return f"{seconds * 1000:.2f} ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def plain_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns of text, for pipes and files: nothing is cut or wrapped."""
    lines = [tuple(headers), *map(tuple, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    padded = [GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join(line.rstrip() for line in padded)


DECLARATION_HEADERS = ("NAME", "VERSION", "STATE", "CODE", "TRAVELS", "BUILD", "QUEUES", "DECLARED BY", "DECLARED AT")


def declaration_row(declaration: Declaration, readiness: Readiness) -> tuple[str, ...]:
    """One line of ``envq env list``."""
    return (
        declaration.name,
        f"v{declaration.version}",
        readiness.summary,
        size(declaration.size),
        "by value" if declaration.by_value else "by reference",
        declaration.build + (", required" if declaration.required else ""),
        "all" if declaration.queues is None else ", ".join(declaration.queues),
        declaration.declared_by,
        declaration.declared_at,
    )


def declaration_json(declaration: Declaration, readiness: Readiness) -> dict[str, Any]:
    """The header as stored, the summary, and each executor's state."""
    return {
        **asdict(declaration),
        "summary": readiness.summary,
        "ready": readiness.ready,
        "executors": [
            {"executor": holder.executor, **(asdict(holder.held) if holder.held else {}), "state": holder.state}
            for holder in readiness.holders
        ],
    }


def declaration_lines(declaration: Declaration, readiness: Readiness) -> list[str]:
    """``envq env show``: header, options, then each executor with the traceback of what failed."""
    row = dict(zip(DECLARATION_HEADERS, declaration_row(declaration, readiness), strict=True))
    made_with = f", Python {declaration.python}, cloudpickle {declaration.cloudpickle}" if declaration.python else ""
    facts = {
        "version": row["VERSION"] + (" (given)" if declaration.explicit else ""),
        "state": row["STATE"],
        "code": f"{row['CODE']} {row['TRAVELS']}, digest {declaration.digest[:12]}{made_with}",
        "build": f"{row['BUILD']}; replace: {declaration.replace}; driver: {declaration.driver}",
        "limits": f"build {declaration.init_timeout:g} s, reset {declaration.reset_timeout:g} s",
        "queues": row["QUEUES"],
        "declared": f"{declaration.declared_at} by {declaration.declared_by}",
    }
    head = [declaration.name, *(f"  {name + ':':<10} {text}" for name, text in facts.items())]
    return head + [line for holder in readiness.holders for line in _holder_lines(holder)]


def _holder_lines(holder: Holder) -> list[str]:
    held = holder.held
    counts = (
        f"  v{held.version}, built {held.builds}x in {duration(held.build_seconds)}, reset {held.resets}x,"
        f" used {held.uses}x{f', left dirty {held.dirty}x' if held.dirty else ''}, {held.rss_mib:g} MiB"
        if held
        else ""
    )
    error = [f"      {line}" for line in holder.error.rstrip().splitlines()]
    return [f"  {holder.executor}: {holder.state}{counts}", *error]


def declaration_outcome(before: Declaration | None, after: Declaration, asked: int | None) -> str:
    """What ``envq env declare`` brought about."""
    now = f"{after.name} v{after.version}"
    if before is None:
        return f"{now} declared"
    if asked is not None and asked < before.version:
        return f"{now} stays: a lower version does not replace it"
    if before == after:
        return f"{now} is declared already, nothing changed"
    if before.version == after.version:
        return f"{now}: options changed"
    return f"{now} replaces v{before.version}"


def last_line(text: str) -> str:
    """The last line of a traceback: the exception itself."""
    return text.strip().rpartition("\n")[2]


def brief(text: str) -> str:
    """The first line of an error, for a cell of a table; of a traceback, of the exception that it ends in."""
    _, found, rest = text.strip().rpartition(_TRACEBACK)
    lines = rest.strip("\n").splitlines()
    said = next((line for line in lines if not (found and line.startswith("  "))), "")
    return said if len(said) <= BRIEF else f"{said[: BRIEF - 1]}…"
