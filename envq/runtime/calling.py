"""Calls the user's code, whatever kind of callable it is."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final, cast

from envq.code.path_reference import PathReference
from envq.errors import EnvironmentVariableError, JobInterrupt

Rest = Generator[Any, Any, Any] | AsyncGenerator[Any, Any]  # of a generator initializer: what follows the yield

INTERRUPTS: Final = (JobInterrupt, KeyboardInterrupt)  # meant for the job, or the driver, that reads
MAX_TRACEBACK_CHARS: Final = 16_384  # states travel; the end of a traceback says most
_OURS: Final = Path(__file__).parent


class Caller:
    """Runs functions, coroutine functions and generator initializers to their result."""

    def __init__(self, run_coroutine: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._run = run_coroutine

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """What it returns, awaited if that is a coroutine."""
        result = function(*args)
        # type() and not isinstance(): a value may be a proxy whose __class__ runs code.
        kind: object = type(cast(object, result))
        return self._run(result) if kind is CoroutineType else result

    def begin(self, initializer: Callable[[], Any]) -> tuple[Any, Rest | None]:
        """The value, and for a generator function what is left to run when the value is let go."""
        if isinstance(initializer, PathReference):
            initializer = initializer.resolve()
        made = self.call(initializer)
        kind: object = type(cast(object, made))
        # A generator that an ordinary function returns is a value like any other.
        if kind is GeneratorType and _is(inspect.isgeneratorfunction, initializer):
            return _first(made), made
        if kind is AsyncGeneratorType and _is(inspect.isasyncgenfunction, initializer):
            return self._run(_first_async(made)), made
        return made, None

    def end(self, rest: Rest) -> None:
        """Run what follows the yield."""
        if isinstance(rest, Generator):
            _finish(rest)
        else:
            self._run(_finish_async(rest))


def traceback_text(error: BaseException) -> str:
    """Its traceback without the frames of this package; the end of it when it is very long."""
    told = traceback.TracebackException.from_exception(error)
    told.stack = traceback.StackSummary.from_list(each for each in told.stack if not _is_ours(each))
    text = "".join(told.format()).rstrip()
    return text if len(text) <= MAX_TRACEBACK_CHARS else "[...]\n" + text[-MAX_TRACEBACK_CHARS:]


def describe(error: BaseException) -> str:
    """Its type and message in a line or a few, also when the message itself cannot be made."""
    return "".join(traceback.format_exception_only(error)).strip()


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return Path(frame.filename).parent == _OURS


def _is(kind: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    function = inspect.unwrap(function)
    return kind(function) or kind(getattr(type(function), "__call__", None))  # noqa: B004 - looked at, not called


def _first(generator: Generator[Any, Any, Any]) -> Any:
    try:
        return next(generator)
    except StopIteration:
        raise EnvironmentVariableError("the generator initializer ended without a yield") from None


async def _first_async(generator: AsyncGenerator[Any, Any]) -> Any:
    try:
        return await anext(generator)
    except StopAsyncIteration:
        raise EnvironmentVariableError("the generator initializer ended without a yield") from None


def _finish(generator: Generator[Any, Any, Any]) -> None:
    try:
        next(generator)
    except StopIteration:
        return
    generator.close()
    raise EnvironmentVariableError("the generator initializer yielded a second time")


async def _finish_async(generator: AsyncGenerator[Any, Any]) -> None:
    try:
        await anext(generator)
    except StopAsyncIteration:
        return
    await generator.aclose()
    raise EnvironmentVariableError("the generator initializer yielded a second time")
