"""How any object comes apart: by pickle's protocol, by cloudpickle's rules, and by a few more."""

from __future__ import annotations

import copyreg
import functools
import typing
from collections.abc import Callable, Mapping
from typing import Any, cast

import cloudpickle  # pyright: ignore[reportMissingTypeStubs]

from envq.code.shipping import reference_of

Reduced = str | tuple[Any, ...]
Rule = Callable[[Any], Reduced]

# State comes as bytes in protocol 4, and as buffers that must be collected apart in protocol 5.
_PROTOCOL = 4


def cached(function: Callable[..., Any], maxsize: int | None, typed: bool) -> Callable[..., Any]:
    """Rebuild a function decorated with ``functools.lru_cache``, with an empty cache."""
    return functools.lru_cache(maxsize=maxsize, typed=typed)(function)


def _reduce_lru_cache(wrapper: Any) -> Reduced:
    if reference_of(wrapper):
        return cast("str", wrapper.__qualname__)
    options = wrapper.cache_parameters()
    return cached, (wrapper.__wrapped__, options["maxsize"], options["typed"])


def _reduce_cached_property(prop: functools.cached_property[Any]) -> Reduced:
    # Up to Python 3.11 it holds a lock, which pickle refuses.
    return functools.cached_property, (prop.func,), {"attrname": prop.attrname, "__doc__": prop.__doc__}


def _reduce_new_type(new_type: Any) -> Reduced:
    if reference_of(new_type):
        return cast("str", new_type.__qualname__)
    return typing.NewType, (new_type.__name__, new_type.__supertype__)


# What pickle and cloudpickle send by name even from ``__main__``, or cannot send at all.
EXTRA_RULES: Mapping[type, Rule] = {
    type(functools.lru_cache(abs)): _reduce_lru_cache,
    functools.cached_property: _reduce_cached_property,
    typing.NewType: _reduce_new_type,
}
_RULES = cast("Mapping[type, Rule]", cloudpickle.Pickler.dispatch_table)  # pyright: ignore[reportUnknownMemberType]


def reduce(obj: object) -> Reduced:
    """What pickle would write for this object; raises what its own reduction raises."""
    kind = type(obj)
    rule = EXTRA_RULES.get(kind) or _RULES.get(kind) or copyreg.dispatch_table.get(kind)
    return cast("Reduced", obj.__reduce_ex__(_PROTOCOL) if rule is None else rule(obj))
