"""From a declaration, as it is stored, to what the runtime builds from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from envq.code.payload import Blob, load_code
from envq.runtime import Callables, Recipe
from envq.store.records import Declaration


def recipe(declaration: Declaration, load: Callable[[], Callables]) -> Recipe:
    """What the runtime builds from; ``load`` is called when it is first built."""
    return Recipe(
        name=declaration.name,
        version=declaration.version,
        epoch=declaration.epoch,
        digest=declaration.digest,
        load=load,
        build=cast(Any, declaration.build),
        replace=cast(Any, declaration.replace),
        init_timeout=declaration.init_timeout,
        reset_timeout=declaration.reset_timeout,
    )


def stored_recipe(declaration: Declaration, code: Callable[[Declaration], Blob]) -> Recipe:
    """The same, with its code from the store; loading raises CodeMissing or PayloadError."""
    return recipe(declaration, lambda: Callables(*cast(tuple[Any, ...], load_code(code(declaration)))))
