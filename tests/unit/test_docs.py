"""Tables in the documents against the code they describe."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from envq.store import keys
from envq.store.keys import Keys
from envq.store.records import Event, EventKind

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


def section(text: str, heading: str) -> str:
    """What stands below a heading, up to the next one of its rank."""
    level = heading.split()[0]
    found = re.search(rf"^{re.escape(heading)}.*?\n(.*?)(?=^#{{2,{len(level)}}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"there is no section {heading!r}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of all table rows whose first cell is code."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def events() -> dict[str, list[str]]:
    """Kind of event → the fields the README names; "the same" is those of job.started."""
    table = {code(kind)[0]: named for kind, _, named in rows(section(README, "## Events"))}
    same = code(table["job.started"])
    return {kind: (same if "the same" in named else []) + code(named) for kind, named in table.items()}


def test_the_readme_lists_every_kind_of_event_and_no_other() -> None:
    assert list(events()) == [kind.value for kind in EventKind]


def test_the_readme_names_only_fields_that_events_have() -> None:
    known = {field.name for field in fields(Event)} - {"kind", "at"}
    assert {kind: named for kind, named in events().items() if not set(named) <= known} == {}
    assert known == {field for named in events().values() for field in named}


def keys_in_the_code() -> Iterator[str]:
    """Every key and channel, its variable parts in braces."""
    yield from (keys.SUSPENDED, keys.QUEUES, keys.WORKERS)
    for name, function in inspect.getmembers(keys, inspect.isfunction):
        if function.__module__ == keys.__name__ and not name.startswith("_"):
            yield function(**braces(function))
    own = Keys("{namespace}")
    for name, member in inspect.getmembers(Keys):
        if isinstance(member, property):
            yield getattr(own, name).replace(":0:", ":{database}:")
        elif inspect.isfunction(member) and not name.startswith("_") and name != "queue_name":
            yield getattr(own, name)(**braces(member))


def braces(function: object) -> dict[str, str]:
    names = inspect.signature(function).parameters  # type: ignore[arg-type]
    return {name: f"{{{name}}}" for name in names if name != "self"}


def test_the_architecture_lists_every_key() -> None:
    listed = {code(key)[0] for key, *_ in rows(section(ARCHITECTURE, "## What is in Redis"))}
    assert listed == set(keys_in_the_code())


def modules_on_the_map() -> Iterator[str]:
    """Each file of each table of the map, below the folder that heads the table."""
    folder = ""
    for first, _ in rows(section(ARCHITECTURE, "## Map")):
        for name in code(first):
            if name.endswith("/"):
                folder = name
            else:
                yield folder + name


def test_the_map_shows_every_module_once() -> None:
    shown = Counter(modules_on_the_map())
    files = {path for package in ("envq", "workers", "cli") for path in (ROOT / package).rglob("*.py")}
    modules = {path.relative_to(ROOT).as_posix() for path in files if path.name != "__init__.py"}
    assert set(shown) == modules
    assert [name for name, times in shown.items() if times > 1] == []


def test_files_named_on_the_path_of_a_job_exist() -> None:
    named = re.findall(r"`((?:envq|workers|cli)/[\w/.]+)`", ARCHITECTURE)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []
