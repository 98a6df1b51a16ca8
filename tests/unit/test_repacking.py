"""A function that is enqueued again is packed once, and at once anew when anything that it takes along has changed."""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable
from typing import Any

import pytest

import envq
from envq.code.digest import code_digest
from envq.code.payload import Blob
from envq.code.repacking import FUNCTIONS_KEPT, _kept, pack_function
from envq.settings import Limits

SOURCE = """
import math, envq
from envq import env, task

NUMBER = 1
TEXT = "text"
PAIR = (1, ("a", frozenset({2})))
later: int

def helper(x, *, step=1):
    return x + NUMBER + step

def outer(amount):
    def inner(x: int = 3, /, *rest: "str") -> list[int]:
        "Adds."
        return [helper(x) + amount + math.floor(PAIR[0]) + len(TEXT)]
    return inner

@task
def other():
    return NUMBER

def recursive(n):
    return env.model if n == 0 else recursive(n - 1) + missing + len(other.__name__)

function = outer(5)
"""


@pytest.fixture
def module() -> dict[str, Any]:
    """A script's globals, its functions not importable."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(SOURCE, names)
    return names


def packed(function: Any) -> Blob:
    return pack_function(function, what="function", limits=Limits())


def kept(function: Any) -> Blob:
    """The blob, as one that is packed no more."""
    for _ in range(2):
        packed(function)
    blob = packed(function)
    assert packed(function) is blob
    return blob


def change_cell(names: dict[str, Any]) -> None:
    names["function"].__closure__[0].cell_contents = 6


def change_helper_default(names: dict[str, Any]) -> None:
    names["helper"].__kwdefaults__["step"] = 2


def change_code(names: dict[str, Any]) -> None:
    names["helper"].__code__ = (lambda x, *, step=1: x).__code__


def add_attribute(names: dict[str, Any]) -> None:
    names["helper"].note = [1]


def annotate(names: dict[str, Any]) -> None:
    names["function"].__annotations__["x"] = float


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "a global": lambda names: names.update(NUMBER=2),
    "a global that is equal but of another type": lambda names: names.update(NUMBER=True),
    "a global's type": lambda names: names.update(PAIR=[1]),
    "a global that is gone": lambda names: names.pop("TEXT"),
    "a global that hides a builtin": lambda names: names.update(len=lambda _: 0),
    "a helper": lambda names: exec("def helper(x, *, step=1): return x", names),
    "a helper's code": change_code,
    "a helper's default": change_helper_default,
    "an attribute": add_attribute,
    "an annotation": annotate,
    "a cell": change_cell,
    "defaults": lambda names: setattr(names["function"], "__defaults__", (4,)),
    "the docstring": lambda names: setattr(names["function"], "__doc__", "Adds more."),
    "the module behind a name": lambda names: names.update(math=types.SimpleNamespace(floor=math.ceil)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_is_packed_anew(change: str, module: dict[str, Any]) -> None:
    function = module["function"]
    before = kept(function)
    CHANGES[change](module)
    after = packed(function)
    assert after is not before
    assert after.header.digest == code_digest(function) != before.header.digest


def test_tasks_recursion_and_names_that_are_not_there_yet_are_followed(module: dict[str, Any]) -> None:
    function = module["recursive"]
    before = kept(function)
    module["missing"] = 1
    with_missing = kept(function)
    assert with_missing.header.digest != before.header.digest
    module["NUMBER"] = 3  # of the task it reads
    assert packed(function).header.digest == code_digest(function) != with_missing.header.digest


def test_what_can_change_in_place_is_looked_at_each_time() -> None:
    values = [1]

    class Local:
        x = 1

    def reads() -> Any:
        return values, Local.x

    for _ in range(3):
        first = packed(reads)
    assert packed(reads) is not first
    values.append(2)
    second = packed(reads).header.digest
    assert second != first.header.digest
    Local.x = 2
    assert packed(reads).header.digest != second


def test_a_module_that_is_shipped_now_goes_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("only_here")
    exec("def f(): return 1", module.__dict__)
    monkeypatch.setitem(__import__("sys").modules, "only_here", module)
    helper = module.f
    lambda_ = lambda: helper()  # noqa: E731 - by value, on a function by name
    before = kept(lambda_)
    envq.ship(module)
    try:
        assert packed(lambda_).header.digest == code_digest(lambda_) != before.header.digest
    finally:
        __import__("cloudpickle").unregister_pickle_by_value(module)


def test_other_limits_are_checked_again() -> None:
    def big() -> str:
        return "x" * 10

    kept(big)
    with pytest.raises(envq.PayloadTooLarge):
        pack_function(big, what="function", limits=Limits(max_bytes=10))


def test_a_wrapped_function_is_followed() -> None:
    def inner(x: int) -> int:
        return x

    @functools.wraps(inner)
    def outer(*args: Any) -> Any:
        return inner(*args)

    before = kept(outer)
    inner.__defaults__ = (1,)
    assert packed(outer).header.digest == code_digest(outer) != before.header.digest


def test_only_so_many_functions_are_kept() -> None:
    def returning(number: int) -> Callable[[], int]:
        return lambda: number

    functions = [returning(number) for number in range(FUNCTIONS_KEPT + 10)]
    assert len({packed(function).header.digest for _ in range(3) for function in functions}) == len(functions)
    assert len(_kept) <= FUNCTIONS_KEPT
