"""What a value is made from: code that is loaded late, and the options that bind the making."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple


class Callables(NamedTuple):
    """The code of one variable, loaded."""

    initializer: Callable[[], Any]
    reinitializer: Callable[[Any], Any] | None = None
    check: Callable[[Any], Any] | None = None
    teardown: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class Recipe:
    """One version of one variable, as it was declared."""

    name: str
    version: int
    epoch: int  # raised by a request to rebuild
    digest: str
    load: Callable[[], Callables] = field(compare=False, repr=False)  # unpickles: may be slow, may raise
    build: Literal["eager", "lazy"] = "eager"
    replace: Literal["keep", "free"] = "keep"
    init_timeout: float = 600.0
    reset_timeout: float = 60.0

    @property
    def identity(self) -> tuple[int, str, int]:
        """A recipe of another identity is built anew; other options alone change nothing that is built."""
        return self.version, self.digest, self.epoch
