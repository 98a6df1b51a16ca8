"""Flag, environment, file, default: in this order, under the same names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from envq.cli import app, config_file
from envq.cli.options import Invocation
from envq.errors import ConfigurationError

Settings = Callable[..., dict[str, Any]]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Settings:
    """`envq config` as a function: arguments, and the text of a file, to name → (value, source)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, file: str = "", name: str = "pyproject.toml") -> dict[str, Any]:
        if file:
            (tmp_path / name).write_text(file)
        assert app.run(Invocation(), ["config", "--json", *arguments]) == 0
        return {row["name"]: (row["value"], row["source"]) for row in json.loads(capsys.readouterr().out)}

    return run


def test_a_flag_goes_before_the_environment_the_file_and_the_default(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert settings()["workers"] == (1, "default")
    file = "[tool.envq]\nworkers = 2\n"
    assert settings(file=file)["workers"] == (2, str(tmp_path / "pyproject.toml"))
    monkeypatch.setenv("ENVQ_WORKERS", "3")
    assert settings()["workers"] == (3, "ENVQ_WORKERS")
    assert settings("-w", "4")["workers"] == (4, "command line")


def test_the_url_comes_from_envq_url_then_redis_url_and_hides_its_password(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://:secret@old:1/0")
    assert settings()["url"] == ("redis://:***@old:1/0", "REDIS_URL")
    monkeypatch.setenv("ENVQ_URL", "redis://new:1/0")
    assert settings()["url"] == ("redis://new:1/0", "ENVQ_URL")


def test_queues_that_are_typed_put_aside_those_of_the_environment(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings()["queue"] == (["default"], "default")
    monkeypatch.setenv("ENVQ_QUEUES", "a b")
    assert settings()["queue"] == (["a", "b"], "ENVQ_QUEUES")
    assert settings("high,low")["queue"] == (["high", "low"], "command line")
    assert settings("high", "-q", "low")["queue"] == (["high", "low"], "command line")


def test_envq_toml_goes_before_pyproject_and_lists_and_switches_work(settings: Settings, tmp_path: Path) -> None:
    settings(file="[tool.envq]\nworkers = 9\n")
    shown = settings(file='queue = ["high", "low"]\nscheduler = false\nmiddleware = "m:n"\n', name="envq.toml")
    assert shown["queue"][0] == ["high", "low"]
    assert shown["scheduler"] == (False, str(tmp_path / "envq.toml"))
    assert shown["middleware"][0] == ["m:n"]
    assert shown["workers"] == (1, "default")


def test_a_file_in_a_parent_folder_counts(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "envq.toml").write_text("workers = 7\n")
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path / "src")
    assert settings()["workers"][0] == 7


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("wokers = 2\n", "unknown setting 'wokers'"),
        ("workers = \n", "no valid TOML"),
        ("json = true\n", "unknown setting 'json'"),
    ],
)
def test_a_mistake_in_the_file_is_a_configuration_error_that_names_the_file(
    text: str, complaint: str, tmp_path: Path
) -> None:
    (tmp_path / "envq.toml").write_text(text)
    root = get_command(app.make_app())
    with pytest.raises(ConfigurationError, match=complaint) as raised:
        found = config_file.find(tmp_path)
        assert found is not None
        config_file.default_map(found, root)
    assert "envq.toml" in str(raised.value)


def test_other_commands_take_the_url_from_the_file_but_not_the_number_of_workers() -> None:
    file = config_file.ConfigFile(Path("envq.toml"), {"url": "redis://h", "workers": 4})
    defaults = config_file.default_map(file, get_command(app.make_app()))
    assert defaults["worker"] == {"url": "redis://h", "workers": 4}
    assert defaults["env"]["wait"] == {"url": "redis://h"}


def test_every_flag_of_the_worker_has_its_variable() -> None:
    command: Any = get_command(app.make_app())
    short_cuts = {"help", "verbose", "quiet"}
    for parameter in command.commands["worker"].params:
        if parameter.opts[0].startswith("--") and parameter.name not in short_cuts:
            names = parameter.envvar if isinstance(parameter.envvar, list) else [parameter.envvar]
            assert all(re.fullmatch("ENVQ_[A-Z_]+|REDIS_URL", name) for name in names), parameter.name
