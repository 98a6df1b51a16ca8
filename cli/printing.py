"""The one place that prints results: JSON where asked, a table on a terminal, plain columns elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from envq.cli.render import plain_table


def print_json(value: Any) -> None:
    """One JSON document."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def print_table(title: str, headers: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str) -> None:
    """Rows under their headers, or the sentence ``empty`` where there are none."""
    kept = list(rows)
    if not kept:
        print(empty)
    elif sys.stdout.isatty():
        _print_rich(title, headers, kept)
    else:
        print(plain_table(headers, kept))


def _print_rich(title: str, headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich import box  # noqa: PLC0415 - rich takes 60 ms, and only a terminal needs it
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.markup import escape  # noqa: PLC0415 - as above
    from rich.table import Table  # noqa: PLC0415 - as above

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for header in headers:
        table.add_column(header, overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    Console().print(table)
