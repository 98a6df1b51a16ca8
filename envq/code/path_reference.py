"""A callable given as "package.module:callable", which only the worker needs to be able to import."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from envq.code.loading import explain
from envq.errors import PayloadError

_NAME = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
_PATH = re.compile(f"{_NAME}:{_NAME}")


@dataclass(frozen=True)
class PathReference:
    """Stands for the callable at ``path``; looked up at each call, or once by :meth:`resolve`."""

    path: str

    def __post_init__(self) -> None:
        if not _PATH.fullmatch(self.path):
            raise PayloadError(f"{self.path!r} is not of the form 'package.module:callable'")

    def resolve(self) -> Any:
        """The callable itself; raises PayloadError where the module or the name is missing."""
        module_name, _, qualname = self.path.partition(":")
        try:
            found: object = attrgetter(qualname)(importlib.import_module(module_name))
        except Exception as error:
            raise PayloadError(f"{self.path!r} cannot be loaded here: {explain(error)}") from error
        if not callable(found):
            raise PayloadError(f"{self.path!r} is not callable but a {type(found).__name__}")
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.resolve()(*args, **kwargs)
