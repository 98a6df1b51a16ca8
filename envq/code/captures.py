"""What code takes along when it travels, each with the name its author knows it by."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from envq.code.codeform import global_names
from envq.code.shipping import is_shipped, reference_of, underlying

_DEPTH = 50  # steps from the code to the culprit; more would not read as a sentence anyway


class Capture(NamedTuple):
    """One thing taken along; its label says all (a variable), or is only a step into a container."""

    label: str
    value: object
    is_step: bool = False


class Arguments:
    """Arguments of a call, named as such; pickled as the plain pair of a tuple and a dict."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs

    def __reduce__(self) -> tuple[object, ...]:
        return tuple, ((self.args, self.kwargs),)


@dataclass(frozen=True)
class Culprit:
    """The innermost guilty object that has a name, and where it was found ("" for the root itself)."""

    path: str
    value: object


def locate(root: object, guilty: Callable[[object], bool]) -> Culprit:
    """Follow the captures that are guilty, from the root inwards, as far as they have names."""
    captures: list[Capture] = []
    current, seen = root, {id(root)}
    while len(captures) < _DEPTH:
        # What takes along nothing itself comes first: it cannot be guilty for something else's sake.
        nested = sorted(captures_of(current), key=lambda capture: _takes_along(capture.value))
        found = next((c for c in nested if id(c.value) not in seen and guilty(c.value)), None)
        if found is None:
            break
        captures.append(found)
        current = found.value
        seen.add(id(current))
    return Culprit(_path(captures), current)


def _path(captures: list[Capture]) -> str:
    """The last name and the steps behind it: "closure variable 'config' of make at ['db']"."""
    last = max((i for i, capture in enumerate(captures) if not capture.is_step), default=-1)
    steps = "".join(capture.label for capture in captures[last + 1 :])
    named = captures[last].label if last >= 0 else ""
    if last > 0 and captures[0].label.startswith("argument"):
        named = f"{captures[0].label}, {named}"
    return f"{named or 'the value'} at {steps}" if steps else named


def _takes_along(obj: object) -> bool:
    return next(captures_of(obj), None) is not None


def captures_of(obj: object) -> Iterator[Capture]:
    """The named things inside one object; nothing for what goes by reference or is opaque."""
    code = underlying(obj)
    for kind, walk in _WALKS.items():
        if isinstance(code, kind):
            yield from walk(code)
            return
    if (inner := getattr(code, "__wrapped__", None)) is not None:
        yield from captures_of(inner)
    elif reference_of(type(code)) is None and hasattr(code, "__dict__"):
        yield from (Capture(f".{name}", value, is_step=True) for name, value in vars(code).items())


def _of_function(function: types.FunctionType) -> Iterator[Capture]:
    if reference_of(function):
        return
    name, code = function.__qualname__.rpartition("<locals>.")[2], function.__code__
    for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if cell != types.CellType():
            yield Capture(f"closure variable {variable!r} of {name}", cell.cell_contents)
    for parameter, default in _defaults(function):
        yield Capture(f"default argument {parameter!r} of {name}", default)
    for variable in global_names(code):
        if variable in function.__globals__:
            yield Capture(f"global {variable!r} of {name}", function.__globals__[variable])
    for attribute, value in vars(function).items():
        yield Capture(f"attribute {attribute!r} of {name}", value)


def _defaults(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    defaults, count = function.__defaults__ or (), function.__code__.co_argcount
    yield from zip(function.__code__.co_varnames[count - len(defaults) : count], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def _of_method(method: types.MethodType) -> Iterator[Capture]:
    yield Capture(f"the object that {method.__func__.__name__} is bound to", method.__self__)
    yield from captures_of(method.__func__)


def _of_builtin(function: types.BuiltinMethodType) -> Iterator[Capture]:
    if not isinstance(function.__self__, types.ModuleType | type | None):
        yield Capture(f"the object that {function.__name__} is bound to", function.__self__)


def _of_partial(partial: functools.partial[Any]) -> Iterator[Capture]:
    name = getattr(partial.func, "__name__", type(partial.func).__name__)
    for position, value in enumerate(partial.args):
        yield Capture(f"partial argument {position} of {name}", value)
    for keyword, value in partial.keywords.items():
        yield Capture(f"partial argument {keyword!r} of {name}", value)
    yield from captures_of(partial.func)


def _of_class(cls: type) -> Iterator[Capture]:
    if reference_of(cls):
        return
    for name, value in list(vars(cls).items()):
        if not isinstance(value, types.GetSetDescriptorType | types.MemberDescriptorType):
            yield Capture(f"attribute {name!r} of class {cls.__qualname__}", value)


def _of_module(module: types.ModuleType) -> Iterator[Capture]:
    if is_shipped(module.__name__):
        for name, value in list(vars(module).items()):
            if name != "__builtins__":
                yield Capture(f"{name!r} of the shipped module {module.__name__}", value)


def _of_wrapper(wrapper: Any) -> Iterator[Capture]:
    yield from captures_of(wrapper.__func__)


def _of_property(prop: property) -> Iterator[Capture]:
    for accessor in (prop.fget, prop.fset, prop.fdel):
        if accessor is not None:
            yield from captures_of(accessor)


def _of_arguments(arguments: Arguments) -> Iterator[Capture]:
    for position, value in enumerate(arguments.args):
        yield Capture(f"argument {position}", value)
    for keyword, value in arguments.kwargs.items():
        yield Capture(f"argument {keyword!r}", value)


def _of_mapping(mapping: dict[object, object]) -> Iterator[Capture]:
    for key, value in list(mapping.items()):
        yield Capture(f"[{key!r}]", value, is_step=True)


def _of_sequence(sequence: tuple[object, ...]) -> Iterator[Capture]:
    for position, value in enumerate(sequence):
        yield Capture(f"[{position}]", value, is_step=True)


def _of_set(members: set[object]) -> Iterator[Capture]:
    for value in list(members):
        yield Capture("{...}", value, is_step=True)


_WALKS = cast(
    "Mapping[type, Callable[[object], Iterator[Capture]]]",
    {
        types.FunctionType: _of_function,
        types.MethodType: _of_method,
        types.BuiltinMethodType: _of_builtin,
        functools.partial: _of_partial,
        types.ModuleType: _of_module,
        staticmethod: _of_wrapper,
        classmethod: _of_wrapper,
        property: _of_property,
        type: _of_class,
        dict: _of_mapping,
        tuple: _of_sequence,
        list: _of_sequence,
        set: _of_set,
        frozenset: _of_set,
        Arguments: _of_arguments,
    },
)
