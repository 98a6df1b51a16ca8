"""README and docs tell no lies: their programs run, their commands exist, their flags are known."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import redis
from support.processes import clean_environment
from support.workers import WorkerProcess

from envq.store import events

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MISTAKES = ROOT / "docs" / "bad-inputs.md"  # its commands are wrong on purpose
BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`(?P<text>envq [a-z][^`]*)`(?!`)")
PROMISED_OUTPUT = re.compile(r"^\s*print\(.*\)  # (?P<output>.*)$", re.MULTILINE)

TESTS = re.compile(r"^def test_", re.MULTILINE)
RUN_TESTS = """
if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
"""


@dataclass(frozen=True)
class Sample:
    """A program or a command that a document shows."""

    document: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.document.name}:{self.line}"


def blocks(*languages: str) -> Iterator[Sample]:
    for document in DOCUMENTS:
        text = document.read_text()
        for block in BLOCK.finditer(text):
            if block["language"] in languages:
                yield Sample(document, text.count("\n", 0, block.start()) + 2, block["text"])


def commands() -> Iterator[Sample]:
    """Each line of the shell blocks, and what the running text quotes of the command line."""
    for block in blocks("console", "sh", "bash"):
        for number, line in enumerate(block.text.splitlines()):
            if command := line.split("  #")[0].strip():
                yield Sample(block.document, block.line + number, command)
    for document in DOCUMENTS:
        if document == MISTAKES:
            continue
        without_blocks = BLOCK.sub(lambda block: "\n" * block[0].count("\n"), document.read_text())
        for inline in INLINE.finditer(without_blocks):
            yield Sample(document, without_blocks.count("\n", 0, inline.start()) + 1, inline["text"])


@pytest.mark.parametrize("program", list(blocks("python")), ids=str)
def test_every_program_runs_and_prints_what_it_says(
    program: Sample,
    worker: Callable[..., WorkerProcess],
    run_script: Callable[..., CompletedProcess[str]],
) -> None:
    worker("default", "-w", "2", executors=2)
    if TESTS.search(program.text):
        run_script(program.text + RUN_TESTS)
        return
    done = run_script(program.text)
    for promised in PROMISED_OUTPUT.finditer(program.text):
        assert promised["output"] in done.stdout.splitlines()


@pytest.mark.parametrize("command", list(commands()), ids=str)
def test_every_command_exists(command: Sample) -> None:
    name, *arguments = shlex.split(command.text)
    assert name in CHECKS, f"this test does not know the command {name!r}"
    CHECKS[name](arguments)


def check_envq(arguments: list[str]) -> None:
    """The command exists, and its help names every flag."""
    words = [word for word in arguments if re.fullmatch(r"[a-z]+", word)]
    path = words[:2] if words[:1] == ["env"] else words[:1]
    text = help_of(*path)
    flags = [word.split("=")[0] for word in arguments if word.startswith("-")]
    unknown = [flag for flag in flags if not re.search(rf"(^|[\s,/]){re.escape(flag)}\b", text)]
    assert not unknown, f"`envq {' '.join(path)}` has no {unknown}"


@cache
def help_of(*path: str) -> str:
    """Help in full width; a command that does not exist fails the test."""
    done = subprocess.run(
        [sys.executable, "-m", "envq", *path, "--help"],
        env=clean_environment({"COLUMNS": "200"}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_make(arguments: list[str]) -> None:
    targets = [argument for argument in arguments if "=" not in argument]
    done = subprocess.run(["make", "--dry-run", *targets], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def check_pip(arguments: list[str]) -> None:
    assert arguments[0] == "install"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in re.findall(r"\[(\w+)\]", " ".join(arguments)):
        assert extra in extras


def check_files(arguments: list[str]) -> None:
    """Whatever looks like a file of ours is one."""
    for argument in arguments:
        if "/" in argument and "://" not in argument:
            assert (ROOT / argument).exists(), f"{argument} does not exist"


def check_setting(arguments: list[str]) -> None:
    """Some file of envq reads the variable."""
    name = arguments[0].partition("=")[0].removesuffix("_FILE")
    assert any(name in path.read_text() for path in (ROOT / "envq").rglob("*.py")), name


def check_installed(name: str) -> Callable[[list[str]], None]:
    """A program that everybody has."""

    def check(arguments: list[str]) -> None:
        assert arguments and shutil.which(name), name

    return check


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "bash": check_files,
    "docker": check_files,
    "envq": check_envq,
    "export": check_setting,
    "make": check_make,
    "openssl": check_installed("openssl"),
    "pip": check_pip,
    "pytest": check_files,
    "uvicorn": check_files,
}


EVENTFUL = """
import envq
from envq.errors import JobFailed

mood = "fine"


def make():
    if mood == "broken":
        raise ValueError("out of order")
    return []


envq.env.thing = envq.EnvironmentVariable(make, lambda value: envq.REBUILD, driver="never")


@envq.task(retry=envq.Retry(max=1))
def touch(fail):
    envq.env.thing.append(1)
    if fail:
        raise ValueError("asked for")


envq.get(touch.enqueue(False), timeout=20)
try:
    envq.get(touch.enqueue(True), timeout=20)
except JobFailed:
    mood = "broken"
    envq.env.thing = envq.EnvironmentVariable(make, driver="never")
envq.get(envq.Queue().enqueue(len, []), timeout=20)
del envq.env.thing
"""
ALWAYS = {"kind", "at"}


def test_events_carry_the_fields_that_the_readme_names(
    worker: Callable[..., WorkerProcess],
    run_script: Callable[..., CompletedProcess[str]],
    redis_client: redis.Redis,
) -> None:
    process = worker()
    run_script(EVENTFUL)
    assert process.stop() == 0

    messages = [fields[b"event"] for _, fields in redis_client.xrange("envq:default:events")]
    entries = [json.loads(each.to_json()) for message in messages for each in events.read(message)]
    seen = {entry["kind"] for entry in entries}
    assert seen >= {"job.failed", "job.retried", "variable.declared", "variable.removed", "variable.failed"}
    for entry in entries:
        filled = {name for name, value in entry.items() if value} - ALWAYS
        assert filled == promised_fields()[entry["kind"]], entry


@cache
def promised_fields() -> dict[str, set[str]]:
    """Kind of event → the fields in its row of the README's table; "the same" are those of the row of job.started."""
    table = re.findall(r"^\| `(\w+\.\w+)` \| .*? \| (.*) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    fields = {kind: set(re.findall(r"`(\w+)`", cell)) for kind, cell in table}
    for kind, cell in table:
        fields[kind] |= fields["job.started"] if "the same" in cell else set()
    return fields


def test_every_command_of_the_command_line_is_in_the_readme() -> None:
    listed = re.findall(r"^  ([a-z]+)\s{2,}", help_of().partition("Commands:")[2], re.MULTILINE)
    assert listed, help_of()
    readme = (ROOT / "README.md").read_text()
    assert [name for name in listed if f"`envq {name}" not in readme] == []


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name)
def test_every_link_to_a_file_leads_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", document.read_text())
    assert [target for target in targets if not (document.parent / target).exists()] == []
