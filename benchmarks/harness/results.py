"""The file of results: one record for each row and sweep, each with what it depends on; runs are merged into it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

DEFAULT = Path(__file__).resolve().parents[1] / "results" / "results.json"


@dataclass(frozen=True)
class Goal:
    """
    One figure of a row and what it is to be.

    Args:
        what: what is measured, as the table shows it.
        bound: the least, or the most, it may be; None: reported without a goal.
        reached: what it was; None: it could not be measured.
        unit: stands behind both figures.
    """

    what: str
    reached: float | None
    bound: float | None = None
    unit: str = ""
    at_least: bool = True

    @property
    def met(self) -> bool | None:
        """None without a goal."""
        if self.bound is None:
            return None
        return self.reached is not None and (
            self.reached >= self.bound if self.at_least else self.reached <= self.bound
        )


def at_most(what: str, reached: float | None, bound: float, unit: str = "") -> Goal:
    """A goal from above."""
    return Goal(what, reached, bound, unit, at_least=False)


@dataclass
class Outcome:
    """What a row has measured: its goals, envq's figure in ratio to each peer's, and all figures of all rounds."""

    goals: list[Goal] = field(default_factory=list[Goal])
    ratios: dict[str, float] = field(default_factory=dict[str, float])
    figures: dict[str, Any] = field(default_factory=dict[str, Any])
    failures: dict[str, str] = field(default_factory=dict[str, str])

    def as_record(self) -> dict[str, Any]:
        """As it is stored, figures to four digits."""
        return rounded(asdict(self))


def rounded(value: Any) -> Any:
    """The same with four significant digits in every float."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return value


class Results:
    """The records of one file, by section (``rows``, ``sweeps``, ``profiles``) and name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data: dict[str, dict[str, dict[str, Any]]] = json.loads(path.read_text()) if path.exists() else {}

    def section(self, name: str) -> dict[str, dict[str, Any]]:
        """All records of one kind."""
        return self._data.setdefault(name, {})

    def has(self, section: str, name: str, settings: dict[str, Any]) -> bool:
        """Whether this was measured already with these settings."""
        return self.section(section).get(name, {}).get("settings") == settings

    def put(self, section: str, name: str, record: dict[str, Any]) -> None:
        """Replace one record and write the file at once, so that an interrupted run loses only its last row."""
        self.section(section)[name] = record
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self._data, indent=1) + "\n")
        new.replace(self._path)
