"""What the demo's own code wrote into Redis about itself: entries in order, and the counts drawn from them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from redis import Redis


@dataclass(frozen=True)
class Entry:
    """One thing that happened, and the process in which it did."""

    what: str
    pid: int
    parent: int  # the process that started it
    at: float  # seconds since 1970
    facts: dict[str, Any]


@dataclass(frozen=True)
class Ledger:
    """All entries of one driver and its jobs, in the order in which Redis got them."""

    entries: tuple[Entry, ...] = ()

    def of(self, what: str) -> list[Entry]:
        """The entries of one kind."""
        return [entry for entry in self.entries if entry.what == what]

    def facts(self, what: str) -> dict[str, Any]:
        """The facts of the last entry of a kind; none where there is no entry."""
        found = self.of(what)
        return found[-1].facts if found else {}

    def fact(self, what: str, name: str, default: Any = 0) -> Any:
        """One of them."""
        return self.facts(what).get(name, default)

    def total(self, what: str, name: str) -> int:
        """The sum of a number over all entries of a kind."""
        return sum(int(entry.facts[name]) for entry in self.of(what))

    def before_sabotage(self) -> Ledger:
        """What was written before the first job that broke something on purpose."""
        kinds = [entry.what for entry in self.entries]
        return Ledger(self.entries[: kinds.index("sabotage")] if "sabotage" in kinds else self.entries)

    def version(self, number: int) -> Ledger:
        """The builds and jobs of one version of the value."""
        return Ledger(tuple(entry for entry in self.entries if entry.facts.get("version") == number))

    @property
    def executors(self) -> list[int]:
        """The processes that ran jobs."""
        return sorted({entry.pid for entry in self.of("job")})

    @property
    def parents(self) -> set[int]:
        """The processes that started those that ran jobs."""
        return {entry.parent for entry in self.of("job")}

    @property
    def builds(self) -> Counter[int]:
        """How often each process made the value."""
        return Counter(entry.pid for entry in self.of("build"))

    @property
    def forced(self) -> Counter[int]:
        """How often sabotage left a process no choice but to make the value anew."""
        return Counter(entry.pid for entry in self.of("sabotage") if entry.facts["needs_rebuild"])

    @property
    def steps(self) -> Counter[int]:
        """How many steps of a game each process played."""
        counted: Counter[int] = Counter()
        for entry in self.of("steps"):
            counted[entry.pid] += int(entry.facts["count"])
        return counted

    @property
    def dirty(self) -> list[Entry]:
        """The jobs that found something else than what their process had made last."""
        return [entry for entry, made in self._jobs_with_made() if entry.facts["found"] != made]

    @property
    def first_after_sabotage(self) -> list[Entry | None]:
        """For each sabotage the next job of the same process; None where there was none."""
        return [
            next((later for later in self.entries[at:] if later.what == "job" and later.pid == entry.pid), None)
            for at, entry in enumerate(self.entries)
            if entry.what == "sabotage"
        ]

    def _jobs_with_made(self) -> Iterator[tuple[Entry, str]]:
        made: dict[int, str] = {}
        for entry in self.entries:
            if entry.what == "build":
                made[entry.pid] = entry.facts["found"]
            elif entry.what == "job":
                yield entry, made.get(entry.pid, "never made")


def parse(line: bytes) -> Entry:
    """An entry as the drivers write it, a JSON object."""
    facts: dict[str, Any] = json.loads(line)
    what, pid, parent, at = (facts.pop(name) for name in ("what", "pid", "parent", "at"))
    return Entry(what, pid, parent, at, facts)


class Book:
    """Reads what one driver and its jobs wrote; each entry once."""

    def __init__(self, connection: Redis, name: str) -> None:
        self._connection: Any = connection
        self._key = f"demo:{name}"
        self._entries: list[Entry] = []

    def read(self) -> Ledger:
        """Everything so far."""
        lines = cast(list[bytes], self._connection.lrange(self._key, len(self._entries), -1))
        self._entries += map(parse, lines)
        return Ledger(tuple(self._entries))

    def screens(self) -> dict[int, bytes]:
        """The newest small picture of each process's game."""
        found = cast(dict[bytes, bytes], self._connection.hgetall(f"{self._key}:screens"))
        return {int(pid): picture for pid, picture in sorted(found.items())}
