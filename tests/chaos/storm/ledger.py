"""What the jobs of a storm did, as they noted it themselves, outside of the Redis under test."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from chaos.storm.work import BEGUN, DIRTY, ENDED, TOLD


class Effects:
    """The lines of the file; their order is that in which they were written, by whatever process."""

    def __init__(self, path: Path) -> None:
        self.begun: Counter[str] = Counter()
        self.first_begun: dict[str, int] = {}  # line
        self.first_ended: dict[str, int] = {}
        self.told: Counter[tuple[str, str]] = Counter()  # job id and callback
        self.dirty: list[str] = []
        self.pids: dict[str, list[str]] = defaultdict(list)
        for at, line in enumerate(path.read_text().splitlines()):
            word, name, *more = line.split(" ")
            match word:
                case _ if word == BEGUN:
                    self.begun[name] += 1
                    self.first_begun.setdefault(name, at)
                    self.pids[name] += more
                case _ if word == ENDED:
                    self.first_ended.setdefault(name, at)
                case _ if word == TOLD:
                    self.told[name, more[0]] += 1
                case _ if word == DIRTY:
                    self.dirty.append(line)
                case _:
                    raise AssertionError(f"a torn line: {line!r}")
