"""What a code object says, apart from where it stands: no file names, no lines, nothing ordered by hash."""

from __future__ import annotations

import dis
import hashlib
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, ModuleType

_EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
_LOAD_GLOBAL = dis.opmap["LOAD_GLOBAL"]
_GLOBAL_OPS = frozenset({_LOAD_GLOBAL, dis.opmap["STORE_GLOBAL"], dis.opmap["DELETE_GLOBAL"]})
_IMPORT_NAME = dis.opmap["IMPORT_NAME"]

# Python 3.13 stores both in every class body: a line number, and a tuple ordered by hash.
POSITIONAL_CLASS_NAMES = frozenset({"__firstlineno__", "__static_attributes__"})


def _names_of(code: CodeType) -> Iterator[tuple[int, str]]:
    """Opcode and name of each instruction that uses a global or imports a module."""
    raw, extended = code.co_code, 0
    for offset in range(0, len(raw), 2):
        op, arg = raw[offset], raw[offset + 1] | extended
        extended = arg << 8 if op == _EXTENDED_ARG else 0
        if op == _LOAD_GLOBAL:
            yield op, code.co_names[arg >> 1]  # the lowest bit asks for a NULL beside it
        elif op in _GLOBAL_OPS or op == _IMPORT_NAME:
            yield op, code.co_names[arg]


def _with_nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_nested(constant)


def global_names(code: CodeType) -> list[str]:
    """Sorted names of the globals (and builtins) that the code or a function inside it uses."""
    return sorted({name for part in _with_nested(code) for op, name in _names_of(part) if op in _GLOBAL_OPS})


def imported_names(code: CodeType) -> list[str]:
    """Sorted names of the modules imported inside the function's body."""
    return sorted({name for part in _with_nested(code) for op, name in _names_of(part) if op == _IMPORT_NAME})


def code_parts(code: CodeType) -> list[object]:
    """Everything in the code object that matters when it runs, as plain values and nested code objects."""
    return [*_signature(code), *(_class_body(code) if _has_positions(code) else _body(code))]


def _signature(code: CodeType) -> list[object]:
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    variables = (code.co_varnames, code.co_freevars, code.co_cellvars)
    return [code.co_name, *counts, *variables, code.co_exceptiontable]


def _body(code: CodeType) -> list[object]:
    return [code.co_code, code.co_names, code.co_consts]


def _has_positions(code: CodeType) -> bool:
    return not POSITIONAL_CLASS_NAMES.isdisjoint(code.co_names)


def _class_body(code: CodeType) -> list[object]:
    """The instructions of a class body with their arguments resolved, without the stores of positions.

    A line number shares its place among the constants with an equal number in the class, so that
    the raw bytes depend on it.
    """
    instructions = list(dis.get_instructions(code))
    skipped: set[int] = set()
    for load, store in pairwise(instructions):
        if store.opname == "STORE_NAME" and store.argval in POSITIONAL_CLASS_NAMES:
            skipped |= {load.offset, store.offset}
    return [(i.opname, i.argval) for i in instructions if i.offset not in skipped]


def module_source_digest(module_name: str) -> str:
    """Digest of an imported module's source file; empty for Python's own, envq's and compiled modules.

    Those are known by their name alone: they change with an installation, not with a program.
    """
    top = module_name.partition(".")[0]
    path = _source_path(sys.modules.get(module_name))
    if top in sys.stdlib_module_names or top == "envq" or path is None:
        return ""
    try:
        status = path.stat()
        return _file_digest(path, status.st_mtime_ns, status.st_size)
    except OSError:  # inside a zip file, or deleted since
        return ""


def _source_path(module: ModuleType | None) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file) if isinstance(file, str) and file.endswith(".py") else None


@lru_cache(maxsize=4096)
def _file_digest(path: Path, mtime_ns: int, size: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
