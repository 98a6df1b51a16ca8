"""Rules about the source text: who may import whom, and which file alone may know what.

A failing rule names the file. Where an exception is right, it goes into the list above, with its reason.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {"envq": "envq", "workers": "envq.workers", "cli": "envq.cli"}
LONGEST_FILE = 400

READS_OS_ENVIRON = {
    "envq/settings.py": "the one place that reads settings, and that tells a job who it is",
}
KNOWS_KEY_STRINGS = {
    "envq/store/keys.py": "the one place that spells keys and channels",
}
IMPORTS_RQ = {
    "envq/__init__.py": "re-exports Retry, Repeat, Callback, Group, Dependency",
    "envq/jobs/": "RQ's job, queue, options and results, extended",
    "envq/remote.py": "the entry points that stand in RQ's record",
    "envq/store/keys.py": "RQ's key prefix",
    "envq/testing.py": "runs RQ's jobs in the test's own process",
    "workers/execution/context.py": "hands RQ's execution on",
    "workers/execution/calling.py": "RQ's way from a dotted name to a function",
    "workers/execution/kind.py": "the statuses a record may have",
    "workers/execution/rq_path.py": "the one subclass of RQ's worker",
    "workers/execution/rq_pieces.py": "RQ's queue and callback limit, put right",
    "workers/execution/worker_job.py": "the job that it runs",
    "workers/middleware/isolation.py": "the same, from a copy of the executor",
    "workers/middleware/store_result.py": "RQ's Retry, which a job may return",
    "workers/parts.py": "the execution of a job whose record cannot be read",
    "workers/settling.py": "the execution of a job whose executor died after its end",
    "workers/supervision/commands.py": "RQ's commands to workers",
    "workers/supervision/scheduler.py": "RQ's scheduler in a process of its own",
}


@dataclass(frozen=True)
class Module:
    """One source file of the three packages."""

    path: Path

    @property
    def file(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def name(self) -> str:
        """The name under which it is installed."""
        directory, *rest = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join([PACKAGES[directory], *rest]).removesuffix(".__init__")

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)


@cache
def modules() -> list[Module]:
    return [Module(path) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def imports(module: Module) -> Iterator[str]:
    """Everything it imports, also for types only and inside functions; `from a import b` gives a and a.b."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.file}:{node.lineno}: import by the full name"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_of_ours(module: Module) -> set[str]:
    names = {each.name for each in modules()}
    return {name for name in imports(module) if name in names} - {module.name}


def strings(module: Module) -> Iterator[ast.Constant]:
    """String literals, those inside f-strings among them, without docstrings."""
    docstrings = {
        node.body[0].value
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    same_place = {(node.lineno, node.col_offset) for node in docstrings}
    for node in ast.walk(module.tree):
        is_string = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        if is_string and (node.lineno, node.col_offset) not in same_place:
            yield node


def each_module(*, but: dict[str, str] | None = None) -> pytest.MarkDecorator:
    chosen = [module for module in modules() if module.file not in (but or {})]
    return pytest.mark.parametrize("module", chosen, ids=[module.file for module in chosen])


def test_imports_have_no_cycle_not_even_for_types() -> None:
    graph = {module.name: imports_of_ours(module) for module in modules()}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"modules import each other in a circle: {' -> '.join(reversed(error.args[1]))}")


@each_module()
def test_cli_imports_workers_and_workers_import_envq_never_the_other_way(module: Module) -> None:
    if module.file == "envq/__main__.py":  # `python -m envq` is the command
        return
    above = {"envq": {"envq.workers", "envq.cli"}, "workers": {"envq.cli"}, "cli": set[str]()}
    forbidden = above[Path(module.file).parts[0]]
    assert not [name for name in imports(module) if ".".join(name.split(".")[:2]) in forbidden]


@each_module()
def test_the_defining_module_is_imported_not_the_package_root(module: Module) -> None:
    roots = [
        f"line {node.lineno}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and node.module in PACKAGES.values()
        for alias in node.names
        if f"{node.module}.{alias.name}" not in {each.name for each in modules()}
    ]
    assert not roots, "`from envq import x` is where load-time cycles begin"


@each_module(but=READS_OS_ENVIRON)
def test_the_process_environment_is_read_in_the_settings_only(module: Module) -> None:
    nodes = [node for node in ast.walk(module.tree) if isinstance(node, ast.Attribute | ast.ImportFrom)]
    forbidden = re.compile(r"os\.(environb?|getenvb?|putenv)$|from os import .*env")
    assert not [node.lineno for node in nodes if forbidden.match(ast.unparse(node))]


@each_module(but=KNOWS_KEY_STRINGS)
def test_keys_are_spelled_in_the_keys_module_only(module: Module) -> None:
    spelled = [node.lineno for node in strings(module) if re.match(rb"(rq|envq):(?!\s)", as_bytes(node.value))]
    assert not spelled, f"keys are spelled on lines {spelled}"


def as_bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


@pytest.mark.parametrize("script", sorted((ROOT / "envq/store/lua").glob("*.lua")), ids=lambda script: script.name)
def test_scripts_spell_no_keys(script: Path) -> None:
    assert not re.search(r"""["'](rq|envq):""", script.read_text())


@each_module()
def test_rq_is_imported_only_by_those_that_own_a_piece_of_it(module: Module) -> None:
    if module.file.startswith(tuple(IMPORTS_RQ)):
        return
    assert not [name for name in imports(module) if name == "rq" or name.startswith("rq.")]


@each_module()
def test_files_stay_short(module: Module) -> None:
    assert len(module.text.splitlines()) <= LONGEST_FILE


@each_module()
def test_every_module_says_what_it_is_for(module: Module) -> None:
    assert ast.get_docstring(module.tree)


@pytest.mark.parametrize("exceptions", [READS_OS_ENVIRON, KNOWS_KEY_STRINGS, IMPORTS_RQ])
def test_no_exception_outlives_its_file(exceptions: dict[str, str]) -> None:
    for place in exceptions:
        assert any(module.file.startswith(place) for module in modules()), place


def test_every_package_is_installed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = {module.name for module in modules() if module.path.name == "__init__.py"}
    assert set(settings["packages"]) == packages == settings["package-dir"].keys()
    assert all(module.path.with_name("__init__.py").exists() for module in modules())


def test_tests_wait_for_something_and_never_sleep() -> None:
    sleep = re.compile(r"\btime\.sleep\(|\bfrom time import .*\bsleep\b")
    for path in sorted((ROOT / "tests").rglob("*.py")):
        tree = ast.parse(path.read_text())
        calls = [
            node.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.Call | ast.ImportFrom) and sleep.match(ast.unparse(node))
        ]
        assert not calls, f"{path.relative_to(ROOT)} sleeps on lines {calls}"
