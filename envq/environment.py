"""The object behind ``envq.env``: attribute access, handed to whatever scope is bound in this process.

A driver binds a scope that publishes what is assigned, an executor one that never does. The same
function can therefore run on either side.
"""

from __future__ import annotations

import keyword
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, Protocol

from envq.errors import InvalidDeclaration, NotDeclared


class Scope(Protocol):
    """What the attributes of ``envq.env`` mean here."""

    def declare(self, name: str, variable: object) -> None:
        """``env.NAME = variable``; raises InvalidDeclaration."""
        ...

    def read(self, name: str) -> object:
        """``env.NAME``; raises NotDeclared, EnvironmentVariableFailed, DriverReadRefused."""
        ...

    def remove(self, name: str) -> None:
        """``del env.NAME``; raises NotDeclared."""
        ...

    def names(self) -> list[str]:
        """``dir(env)``: what is declared, as far as this process knows."""
        ...


class Environment:
    """
    Attributes only: assign an EnvironmentVariable to declare, read to get the object, ``del`` to remove.

    A worker puts the values that the running job has read into ``__dict__``, so that reading them again
    is plain attribute access.
    """

    def __setattr__(self, name: str, value: object) -> None:
        current_scope().declare(declarable(name), value)

    def __getattr__(self, name: str) -> Any:
        if not _is_name(name):
            # copy, pickle and inspect look for dunder names; the error they expect is this one.
            raise AttributeError(f"envq.env has no attribute {name!r}")
        return current_scope().read(name)

    def __delattr__(self, name: str) -> None:
        if not _is_name(name):
            raise NotDeclared(f"{name!r} cannot be the name of an environment variable", name)
        current_scope().remove(name)

    def __dir__(self) -> list[str]:
        return current_scope().names()

    def __repr__(self) -> str:
        return "envq.env"

    def __reduce__(self) -> str:
        return "env"  # code that travels by value refers to the worker's own environment


class _Unbound:
    """Before any scope is bound."""

    def declare(self, name: str, variable: object) -> NoReturn:
        self.read(name)

    def read(self, name: str) -> NoReturn:
        raise NotDeclared(f"envq.env.{name}: no scope is bound in this process", name)

    def remove(self, name: str) -> NoReturn:
        self.read(name)

    def names(self) -> list[str]:
        return []


env = Environment()
_process_scope: Scope = _Unbound()
_context_scope: ContextVar[Scope | None] = ContextVar("envq_scope", default=None)


def current_scope() -> Scope:
    """The scope of this context if there is one, else that of the process."""
    return _context_scope.get() or _process_scope


def bind(scope: Scope) -> Scope:
    """Make it the scope of the process; returns the one before."""
    global _process_scope
    previous, _process_scope = _process_scope, scope
    return previous


def is_bound(scope: Scope) -> bool:
    """Whether it is the scope of the process."""
    return _process_scope is scope


@contextmanager
def bound(scope: Scope) -> Generator[None]:
    """Make it the scope of the current context only, as long as the block runs."""
    token = _context_scope.set(scope)
    try:
        yield
    finally:
        _context_scope.reset(token)


def _is_name(name: str) -> bool:
    return name.isidentifier() and not name.startswith("_") and not keyword.iskeyword(name)


def declarable(name: str) -> str:
    """The name itself; InvalidDeclaration where no variable can have it."""
    if not _is_name(name):
        raise InvalidDeclaration(
            f"{name!r} cannot be the name of an environment variable: "
            "it must be an identifier, not begin with an underscore and not be a keyword",
            name,
        )
    return name
