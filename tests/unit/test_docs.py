"""Tables in the documents against the code they describe."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from support import bad_input
from typer.main import get_command

import envq
from envq.cli.app import make_app
from envq.jobs.options import JobOptions
from envq.store import keys
from envq.store.keys import Keys
from envq.store.records import Event, EventKind

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
API = (ROOT / "docs" / "api.md").read_text()
CLI = (ROOT / "docs" / "cli.md").read_text()
GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text()
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


def tables(text: str) -> dict[str, str]:
    """First cell of each row that is code → the row; a cell may name several."""
    return {name: " | ".join(cells) for cells in rows(text) for name in code(cells[0])}


def test_the_reference_has_every_public_name() -> None:
    # `envq.get` in running text or a heading, `envq.get(` in a signature, a bare name in the tree of errors
    errors = re.findall(r"^[│├└─ ]*(\w+)", section(API, "## Errors"), re.MULTILINE)
    named = {*re.findall(r"\benvq\.(\w+)", API), *errors}
    assert [name for name in envq.__all__ if name not in named] == []


def test_the_tree_of_errors_in_the_reference_is_that_of_the_code() -> None:
    path: list[str] = []
    for branch, name in re.findall(r"^([│├└─ ]*)([A-Z]\w+)", section(API, "## Errors"), re.MULTILINE):
        if name not in envq.__all__:
            continue
        depth = len(branch) // 4
        path[depth:] = [name]
        if depth:
            assert getattr(envq, name).__bases__[0] is getattr(envq, path[depth - 1]), name


@pytest.mark.parametrize("line", re.findall(r"^envq\.\w+\(.*\)$", API, re.MULTILINE))
def test_signatures_in_the_reference_are_those_of_the_code(line: str) -> None:
    name, _, parameters = line.removeprefix("envq.").partition("(")
    written = ast.parse(f"def f({parameters}: ...").body[0]
    assert isinstance(written, ast.FunctionDef)
    names = [argument.arg for argument in (*written.args.args, *written.args.kwonlyargs)]
    given = [*written.args.defaults, *(each for each in written.args.kw_defaults if each is not None)]
    defaults = dict(zip(names[len(names) - len(given) :], map(ast.literal_eval, given), strict=True))

    real = inspect.signature(getattr(envq, name)).parameters
    for each in names:
        if each in defaults and defaults[each] is not ...:
            assert real[each].default == defaults[each], each
        elif each not in defaults:
            assert real[each].default is inspect.Parameter.empty, each
    keywords = {argument.arg for argument in written.args.kwonlyargs}
    assert keywords == {each for each in names if real[each].kind is inspect.Parameter.KEYWORD_ONLY}
    if name != "Queue":  # of RQ's parameters it shows those that people use
        assert {each for each in real if each not in ("function", "kwargs")} == set(names)


def test_the_reference_lists_every_option_of_a_variable() -> None:
    listed = tables(section(API, "### `envq.EnvironmentVariable`"))
    assert list(listed) == list(inspect.signature(envq.EnvironmentVariable).parameters)


def test_the_reference_lists_every_option_of_a_task() -> None:
    listed = tables(section(API, "### `envq.task`"))
    assert list(listed) == [name for name in inspect.signature(envq.task).parameters if name != "function"]


def test_the_reference_lists_every_method_of_a_task_and_every_option_of_a_job() -> None:
    methods, _, options = section(API, "### `envq.Task`, `envq.AsyncTask`").partition("Options of `options`")
    public = [name for name, _ in inspect.getmembers(envq.Task, inspect.isfunction) if not name.startswith("_")]
    assert sorted(name.partition("(")[0] for name in tables(methods) if "(" in name) == public
    assert list(tables(options)) == list(JobOptions.__annotations__)


def test_the_page_of_the_command_line_has_every_flag_of_the_benchmark() -> None:
    command: Any = get_command(make_app())
    flags = {name for each in command.commands["bench"].params for name in (*each.opts, *each.secondary_opts)}
    shared = {"--json", "--url", "-u", "--namespace", "--debug", "--help", "-h"}
    listed = {part for name in tables(section(CLI, "## `envq bench`")) for part in name.split()[0].split("/")}
    assert {part if part.startswith("-") else f"--{part}" for part in listed if "-" in part} == flags - shared


def test_names_of_tests_in_the_pages_are_those_of_tests() -> None:
    named = {
        found
        for page in (ROOT / "docs").glob("*.md")
        for found in re.findall(r"tests/[\w/]+\.py(?:::\w+)?", page.read_text())
    }
    assert len(named) > 50
    assert [name for name in sorted(named) if not is_a_test(name)] == []


def is_a_test(name: str) -> bool:
    """`tests/ring/file.py`, or `tests/ring/file.py::test_name`."""
    file, _, function = name.partition("::")
    path = ROOT / file
    return path.is_file() and (not function or f"\ndef {function}(" in path.read_text())


def test_every_bad_input_of_the_page_is_tried_and_no_other() -> None:
    files = [ROOT / name for name in sorted(set(re.findall(r"tests/[\w/]+\.py", bad_input.PAGE.read_text())))]
    tried = {found for file in files for found in re.findall(f'"({bad_input.ID})"', file.read_text())}
    assert tried == set(bad_input.table())
    assert len(tried) > 60


@pytest.mark.parametrize("page", ["README.md", "docs/guide.md", "docs/api.md", "docs/cli.md", "docs/guarantees.md"])
def test_links_to_headings_lead_to_one(page: str) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", (ROOT / page).read_text()):
        text = ((ROOT / page).parent / target if target else ROOT / page).read_text()
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
        assert anchor in slugs, f"{target}#{anchor}"


def test_the_chaos_run_on_the_page_is_the_one_that_is_kept() -> None:
    numbers = json.loads((ROOT / "tests" / "chaos" / "results" / "storm.json").read_text())
    for name, value in numbers.items():
        assert f"| {name} | {value} |" in section(GUARANTEES, "## The chaos run")
