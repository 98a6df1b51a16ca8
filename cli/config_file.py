"""``[tool.envq]`` in pyproject.toml, or envq.toml: defaults for flags, under the flags' own names."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from envq.errors import ConfigurationError

EVERYWHERE: Final = ("url", "namespace")  # what commands other than those that run workers take from the file
RUN_WORKERS: Final = ("worker", "dev")
_NOT_SETTINGS: Final = ("help", "version", "json", "debug", "install-completion", "show-completion")


@dataclass(frozen=True)
class ConfigFile:
    """The settings of one file as they are written there."""

    path: Path
    values: dict[str, Any]


def find(start: Path) -> ConfigFile | None:
    """The nearest file with settings, from a folder upwards; envq.toml goes before pyproject.toml."""
    for folder in (start, *start.parents):
        for name in ("envq.toml", "pyproject.toml"):
            found = _read(folder / name)
            if found is not None:
                return found
    return None


def _read(path: Path) -> ConfigFile | None:
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}; make it readable, or remove it") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is no valid TOML: {error}") from None
    values: Any = data
    if path.name == "pyproject.toml":
        tools = data.get("tool")
        if not isinstance(tools, dict) or "envq" not in tools:
            return None
        values = cast(dict[str, Any], tools)["envq"]
    if not isinstance(values, dict):
        raise ConfigurationError(f"{path}: [tool.envq] must be a table")
    return ConfigFile(path, cast(dict[str, Any], values))


def default_map(file: ConfigFile, root: Any) -> dict[str, Any]:
    """The file's values as defaults for each command below ``root`` (a click group)."""
    settings = _settings(root.commands["worker"])
    unknown = sorted(set(file.values) - set(settings))
    if unknown:
        known = ", ".join(sorted(settings))
        raise ConfigurationError(f"{file.path}: unknown setting {unknown[0]!r}; there are: {known}")
    for name, value in file.values.items():
        members = cast("list[Any]", value) if isinstance(value, list) else [value]
        if not all(isinstance(each, str | int | float) for each in members):
            raise ConfigurationError(f"{file.path}: {name} must be a text, a number, true or false, or a list of these")
    return _for_group(root, {settings[name].name: _value(settings[name], value) for name, value in file.values.items()})


def _for_group(group: Any, values: dict[str, Any]) -> dict[str, Any]:
    common = {name: value for name, value in values.items() if name in EVERYWHERE}
    return {
        name: _for_group(command, common)
        if hasattr(command, "commands")
        else (values if name in RUN_WORKERS else common)
        for name, command in group.commands.items()
    }


def _settings(command: Any) -> dict[str, Any]:
    """Each flag's long name, without dashes, and its parameter."""
    names = {
        option.removeprefix("--"): parameter
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--")
    }
    return {name: parameter for name, parameter in names.items() if name not in _NOT_SETTINGS}


def _value(parameter: Any, value: object) -> object:
    """A single value of a flag that may be repeated is a list of one."""
    if not parameter.multiple or isinstance(value, list):
        return cast(object, value)
    return [value]
