"""Packing a function that is enqueued again and again: once, as long as nothing that it takes along has changed."""

from __future__ import annotations

import sys
import types
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from operator import is_
from typing import Any, Final, NamedTuple, cast
from weakref import WeakSet

from envq.code.codeform import global_names, module_source_digest
from envq.code.graph import ATOMS
from envq.code.payload import Blob, pack_code
from envq.code.shipping import MAIN_MODULES, is_shipped, reference_of, shipped_modules, underlying
from envq.settings import KIB, Limits

FUNCTIONS_KEPT: Final = 64
LARGEST_KEPT: Final = 64 * KIB

_IMMUTABLE: Final = frozenset(ATOMS) - {bytearray}
_ABSENT: Final = object()


def pack_function(function: types.FunctionType, *, what: str, limits: Limits) -> Blob:
    """What ``pack_code`` returns for a function, and raises; cheap where it was packed before and is unchanged."""
    kept = _kept.get(id(function))  # which a kept witness keeps alive, so that the number stays its own
    if kept is not None and kept.limits == limits and kept.witness.stands():
        return kept.blob
    blob = pack_code(function, what=what, limits=limits)
    _kept.pop(id(function), None)
    if function not in _packed_before:  # most lambdas are met once
        _packed_before.add(function)
    elif len(blob.body) <= LARGEST_KEPT and (witness := _Witness.of(function)) is not None:
        _kept[id(function)] = _Kept(limits, witness, blob)
        while len(_kept) > FUNCTIONS_KEPT:
            _kept.popitem(last=False)
    return blob


class _Changeable(Exception):
    """Met what may change without becoming another object."""


class _Witness:
    """Everything that the code of a function depends on, by identity: names, cells, and what they lead to."""

    def __init__(self) -> None:
        self._shipped = shipped_modules().copy()
        self._functions: list[tuple[types.FunctionType, tuple[object, ...]]] = []
        self._names: list[tuple[Mapping[str, object], str, object]] = []
        self._cells: list[tuple[types.CellType, object]] = []
        self._references: list[tuple[object, str]] = []
        self._seen: set[int] = set()

    @classmethod
    def of(cls, function: types.FunctionType) -> _Witness | None:
        """None where it takes along a list, an instance or anything else that may change in place."""
        witness = cls()
        try:
            witness._look_at(function)
        except (_Changeable, RecursionError, ValueError):  # ValueError: of a cell that is not filled yet
            return None
        return witness

    def stands(self) -> bool:
        """Whether all of it is as it was."""
        try:
            return (
                shipped_modules() == self._shipped
                and all(_are(_parts(function), parts) for function, parts in self._functions)
                and all(names.get(name, _ABSENT) is value for names, name, value in self._names)
                and all(cell.cell_contents is value for cell, value in self._cells)
                and all(_source_of(obj) == source for obj, source in self._references)
            )
        except ValueError:  # a cell was emptied
            return False

    def _look_at(self, given: object) -> None:
        obj: Any = underlying(given)
        if type(obj) in _IMMUTABLE or id(obj) in self._seen:
            return
        self._seen.add(id(obj))
        if type(obj) in (tuple, frozenset):
            for part in obj:
                self._look_at(part)
        elif isinstance(obj, types.GenericAlias | types.UnionType):  # of an annotation
            self._look_at((getattr(obj, "__origin__", None), obj.__args__))
        elif isinstance(obj, types.ModuleType):
            name = obj.__name__
            if sys.modules.get(name) is not obj or name in MAIN_MODULES or is_shipped(name):
                raise _Changeable
            self._names.append((cast("Mapping[str, object]", sys.modules), name, obj))
        elif (source := _source_of(obj)) is not None:
            self._references.append((obj, source))
        elif isinstance(obj, types.FunctionType):
            self._look_at_function(obj)
        elif type(obj).__module__ != "envq.environment":  # envq.env, which goes by name
            raise _Changeable

    def _look_at_function(self, function: types.FunctionType) -> None:
        self._functions.append((function, _parts(function)))
        self._look_at(function.__defaults__)
        for names in (vars(function), function.__annotations__, function.__kwdefaults__ or {}):
            self._look_at_names(names, list(names))
        self._look_at_names(function.__globals__, global_names(function.__code__))
        for cell in function.__closure__ or ():
            self._cells.append((cell, cell.cell_contents))
            self._look_at(cell.cell_contents)

    def _look_at_names(self, names: Mapping[str, object], wanted: Iterable[str]) -> None:
        for name in wanted:
            value = names.get(name, _ABSENT)
            self._names.append((names, name, value))
            if value is not _ABSENT:
                self._look_at(value)


class _Kept(NamedTuple):
    limits: Limits
    witness: _Witness
    blob: Blob


def _parts(function: types.FunctionType) -> tuple[Any, ...]:
    """What a function is made of besides what stands in its dictionaries, of which only the sizes are here."""
    annotations, keywords = function.__annotations__, function.__kwdefaults__
    return (
        function.__code__, function.__defaults__, function.__closure__, function.__doc__, function.__name__,
        function.__qualname__, function.__module__, annotations, keywords, len(annotations), len(keywords or ()),
        len(vars(function)),
    )  # fmt: skip


def _are(parts: tuple[object, ...], others: tuple[object, ...]) -> bool:
    return all(map(is_, parts, others))


def _source_of(obj: object) -> str | None:
    """Of what a worker can import, its module's source; None for anything else."""
    reference = reference_of(obj)
    return None if reference is None else module_source_digest(reference[0])


_kept: OrderedDict[int, _Kept] = OrderedDict()
_packed_before: WeakSet[types.FunctionType] = WeakSet()
