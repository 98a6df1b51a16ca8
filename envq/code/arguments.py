"""The arguments of a job: as they are where any RQ worker could read them, else packed by value."""

from __future__ import annotations

from typing import Any

from envq.code.captures import Arguments
from envq.code.loading import MINOR, check_python, loads
from envq.code.pickling import plain_pickle
from envq.code.preflight import check_size, checked_dump, warn_size
from envq.settings import Limits


def pack_arguments(args: tuple[Any, ...], kwargs: dict[str, Any], *, what: str, limits: Limits) -> bytes | None:
    """
    None if the arguments may travel as they are: a process without envq can unpickle them.

    Otherwise bytes for :func:`load_arguments`. Raises PayloadError naming "argument 0" or "argument
    'x'" for what cannot travel, and PayloadTooLarge for too many bytes in either case.
    """
    arguments = Arguments(args, kwargs)
    plain = plain_pickle((args, kwargs))
    data = _by_value(arguments, what) if plain is None else plain
    check_size(len(data), arguments, what, limits)
    warn_size(len(data), f"{what}, its arguments", limits, once_for="arguments")
    return data if plain is None else None


def load_arguments(packed: bytes, *, what: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What :func:`pack_arguments` packed; raises PayloadError naming what is missing here."""
    python, _, body = packed.partition(b"\n")
    if python:
        check_python(python.decode("ascii", "replace"), f"an argument of {what}")
    args, kwargs = loads(body, f"the arguments of {what}")
    return args, kwargs


def _by_value(arguments: Arguments, what: str) -> bytes:
    """The pickle behind a line with the Python version that it needs, empty for any."""
    pickled = checked_dump(arguments, what)
    return (MINOR if pickled.by_value else "").encode() + b"\n" + pickled.body
