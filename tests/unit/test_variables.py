"""EnvironmentVariable says at once, in one sentence, what is wrong with a declaration (C4, C14, C15)."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from envq.code.path_reference import PathReference
from envq.errors import EnvqError, InvalidDeclaration
from envq.variables import REBUILD, EnvironmentVariable


def make() -> list[int]:
    return []


def reset(value: list[int]) -> list[int]:
    return value


def generate() -> Iterator[int]:
    yield 1


def generate_from(value: int) -> Iterator[int]:
    yield value


def test_the_defaults_are_those_promised() -> None:
    variable = EnvironmentVariable(make)
    assert variable.callables == (make, None, None, None)
    assert variable.options() == {
        "queues": None,
        "build": "eager",
        "driver": "auto",
        "required": False,
        "replace": "keep",
        "version": None,
        "init_timeout": 600.0,
        "reset_timeout": 60.0,
    }


def test_everything_given_is_kept_and_options_travel_as_json() -> None:
    variable = EnvironmentVariable(
        make, reset, check=bool, teardown=print, queues=["gpu", "cpu", "gpu"], build="lazy", driver="never",
        replace="free", version=3, init_timeout=5, reset_timeout=0.5,
    )  # fmt: skip
    assert variable.callables == (make, reset, bool, print)
    assert variable.queues == ("gpu", "cpu")
    options = variable.options()
    assert json.loads(json.dumps(options)) == options
    assert (options["queues"], options["version"], options["init_timeout"]) == (["gpu", "cpu"], 3, 5.0)


@pytest.mark.parametrize("initializer", [make, lambda: 1, dict, list, object, generate, partial(reset, []), [].copy])
def test_every_callable_without_arguments_can_make_a_value(initializer: Callable[[], Any]) -> None:
    assert EnvironmentVariable(initializer).initializer is initializer


def test_code_may_be_named_by_path() -> None:
    variable = EnvironmentVariable("package.module:make", "package.module:Class.reset", check="m:check")
    assert variable.callables[:3] == (
        PathReference("package.module:make"),
        PathReference("package.module:Class.reset"),
        PathReference("m:check"),
    )


REFUSED: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((None,), {}, "initializer is None"),
    (({"a": "model"},), {}, "object of type dict: pass a function that returns the object"),
    ((3,), {}, "initializer must be callable"),
    (("package.module",), {}, '"package.module:callable"'),
    (("not a path:make",), {}, '"package.module:callable"'),
    ((make, 3), {}, "reinitializer must be callable"),
    ((make,), {"check": True}, "check must be callable"),
    ((make,), {"teardown": "close"}, "teardown='close' is not a path"),
    ((reset,), {}, "initializer is called with no arguments"),
    ((make, make), {}, "reinitializer is called with one argument, the value"),
    ((make,), {"check": lambda a, b: True}, "check is called with one argument"),
    ((make, generate_from), {}, "reinitializer cannot be a generator function"),
    ((make,), {"reset": reset}, "there is no keyword 'reset'; did you mean 'reinitializer'?"),
    ((), {"init": make}, "there is no keyword 'init'; did you mean 'initializer'?"),
    ((make,), {"reinitialiser": reset}, "did you mean 'reinitializer'?"),
    ((make,), {"colour": 1}, "there is no keyword 'colour' (known: build, check"),
    ((make,), {"queues": []}, "at least one; leave it out to build on every worker"),
    ((make,), {"queues": [""]}, "names of queues"),
    ((make,), {"queues": [1]}, "names of queues"),
    ((make,), {"queues": 1}, "names of queues, not an object of type int"),
    ((make,), {"build": "eagerly"}, "build='eagerly' must be one of 'eager', 'lazy'"),
    ((make,), {"build": ["eager"]}, "build=['eager'] must be one of"),
    ((make,), {"driver": None}, "driver=None must be one of 'auto', 'eager', 'lazy', 'never'"),
    ((make,), {"replace": "swap"}, "replace='swap' must be one of 'keep', 'free'"),
    ((make,), {"required": "gpu"}, "required='gpu' must be True or False"),
    ((make,), {"required": True, "build": "lazy"}, "would wait for ever"),
    ((make,), {"version": 0}, "version=0 must be a positive whole number"),
    ((make,), {"version": "2"}, "version='2' must be a positive whole number"),
    ((make,), {"version": True}, "version=True must be a positive whole number"),
    ((make,), {"init_timeout": 0}, "init_timeout=0 must be a positive number of seconds"),
    ((make,), {"init_timeout": None}, "init_timeout=None must be a positive number"),
    ((make,), {"init_timeout": float("inf")}, "init_timeout=inf must be a positive number"),
    ((make,), {"reset_timeout": float("nan")}, "reset_timeout=nan must be a positive number"),
    ((make,), {"reset_timeout": "60"}, "reset_timeout='60' must be a positive number"),
    ((make,), {"reset_timeout": True}, "reset_timeout=True must be a positive number"),
]


@pytest.mark.parametrize(("args", "options", "message"), REFUSED, ids=[message for _, _, message in REFUSED])
def test_a_mistake_is_refused_with_a_sentence(args: tuple[Any, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidDeclaration) as caught:
        EnvironmentVariable(*args, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_mistake_is_a_type_error_and_one_of_ours() -> None:
    assert issubclass(InvalidDeclaration, TypeError)
    assert issubclass(InvalidDeclaration, EnvqError)


def test_a_single_queue_may_be_given_as_a_string() -> None:
    assert EnvironmentVariable(make, queues="gpu").queues == ("gpu",)


def test_required_may_stand_without_queues() -> None:
    assert EnvironmentVariable(make, required=True).required


def test_a_declaration_is_read_only() -> None:
    variable = EnvironmentVariable(make)
    with pytest.raises(AttributeError, match="read-only"):
        variable.version = 2
    with pytest.raises(AttributeError, match="read-only"):
        del variable.version
    assert variable.version is None


def test_a_declaration_can_be_copied_and_pickled() -> None:
    variable = EnvironmentVariable(make, reset, queues=["gpu"])
    for twin in (copy.deepcopy(variable), pickle.loads(pickle.dumps(variable))):
        assert (twin.callables, twin.options()) == (variable.callables, variable.options())


def test_it_prints_what_it_is_made_of() -> None:
    assert repr(EnvironmentVariable(make, reset)) == "EnvironmentVariable(make, reset)"


def test_there_is_one_rebuild_wherever_it_comes_from() -> None:
    assert pickle.loads(pickle.dumps(REBUILD)) is REBUILD
    assert copy.deepcopy(REBUILD) is REBUILD
    assert type(REBUILD)() is REBUILD
    assert repr(REBUILD) == "envq.REBUILD"
