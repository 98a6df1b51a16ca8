"""The tables of docs/bad-inputs.md: what each bad input gets is written there, and tests hold the code to it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[2] / "docs" / "bad-inputs.md"
ID = r"(?:cli|driver|job|record|redis)-[a-z0-9-]+"


class Row(NamedTuple):
    """One bad input: its id, what is given, what it gets."""

    id: str
    given: str
    gets: str

    def assert_told(self, text: str) -> None:
        """Every piece of code in ``gets`` stands in the text; ``…`` in it means anything."""
        for piece in re.findall(r"`([^`]+)`", self.gets):
            pattern = ".*".join(map(re.escape, re.split(" ?… ?", piece)))
            assert re.search(pattern, text, re.DOTALL), f"{self.id}: {piece!r} is not in {text!r}"

    @property
    def code(self) -> int:
        """The exit code it names."""
        found = re.search(r"code (\d)", self.gets)
        assert found, self
        return int(found[1])


def table() -> dict[str, Row]:
    """All rows by id."""
    rows: dict[str, Row] = {}
    for line in PAGE.read_text().splitlines():
        if found := re.match(rf"\| `({ID})` \| (.+?) \| (.+?) \|$", line):
            row = Row(*found.groups())
            assert row.id not in rows, f"{row.id} is there twice"
            rows[row.id] = row
    return rows


def row(row_id: str) -> Row:
    """The row with this id."""
    return table()[row_id]


def assert_one_sentence(error: BaseException) -> str:
    """The text of an error that a user sees, checked to be one line; with its class in front."""
    text = str(error)
    assert text
    assert "\n" not in text
    assert "Traceback" not in text
    return f"{type(error).__name__}: {text}"
