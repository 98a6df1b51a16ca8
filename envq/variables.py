"""What a driver declares: ``EnvironmentVariable``, checked when it is made, and ``REBUILD``.

Nothing here does I/O or builds anything: an EnvironmentVariable holds code and options only.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, NoReturn, ParamSpec, cast, get_args

from envq.code.path_reference import PathReference
from envq.errors import InvalidDeclaration, PayloadError, did_you_mean

Build = Literal["eager", "lazy"]
Driver = Literal["auto", "eager", "lazy", "never"]
Replace = Literal["keep", "free"]

P = ParamSpec("P")

_VALUE: Final = object()  # stands for the value when a signature is checked
_OTHER_NAMES: Final = {
    **dict.fromkeys(["init", "initialize", "setup", "make", "factory"], "initializer"),
    **dict.fromkeys(["reset", "reinit", "reinitialize", "restore", "clean"], "reinitializer"),
    **dict.fromkeys(["validate", "validator", "health", "health_check"], "check"),
    **dict.fromkeys(["close", "cleanup", "finalizer", "destroy", "shutdown"], "teardown"),
    "timeout": "init_timeout",
}


def _known_keywords(function: Callable[P, None]) -> Callable[P, None]:
    """Have it raise InvalidDeclaration, with the right one, for a keyword that it does not take."""
    names = set(inspect.signature(function).parameters) - {"self"}

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        for keyword in kwargs:
            if keyword not in names:
                meant = _OTHER_NAMES.get(keyword)
                hint = f"; did you mean {meant!r}?" if meant else did_you_mean(keyword, names)
                _refuse(f"there is no keyword {keyword!r}{hint} (known: {', '.join(sorted(names))})")
        function(*args, **kwargs)

    return checked


class Rebuild:
    """The type of ``REBUILD``; there is one instance, also after pickling and copying."""

    def __new__(cls) -> Rebuild:
        return cast(Rebuild, globals().get("REBUILD")) or super().__new__(cls)

    def __repr__(self) -> str:
        return "envq.REBUILD"

    def __reduce__(self) -> str:
        return "REBUILD"


REBUILD: Final = Rebuild()
"""Returned by a reinitializer that cannot put the value back: tear it down and run the initializer."""


class EnvironmentVariable:
    """
    How a value is made, put back, checked and torn down, and where it exists; assign it to ``envq.env.NAME``.

    Every callable may be a coroutine function, or a string ``"package.module:callable"``. Attributes are
    read-only. A mistake raises InvalidDeclaration (a TypeError) here, before anything is written.

    Args:
        initializer: makes the value. A generator function yields it; what follows the yield tears it down.
        reinitializer: gets the value a job has used and returns the clean one; the same object, another one,
            or REBUILD. Without one the initializer runs again. The identity function means "never mutated".
        check: gets the value at its first read in a job; false or an exception rebuilds it before the read
            returns.
        teardown: gets a value that is let go. With a generator initializer both run: teardown, then the rest
            of the generator.
        queues: only workers that listen on one of these build it; a single name may be given as a string.
        build: "eager" before jobs run, "lazy" at the first read.
        driver: when the declaring process builds its own copy; "auto" is eager for code in ``__main__``.
        required: executors take no jobs from ``queues`` until it is built; without ``queues``, from no queue.
        replace: "keep" builds a new version before the old value is let go, "free" after.
        version: a version of your own in place of counting changes of the code.
        init_timeout: seconds a build may take.
        reset_timeout: seconds a reset, check or teardown may take.
    """

    initializer: Callable[[], Any]
    reinitializer: Callable[[Any], Any] | None
    check: Callable[[Any], Any] | None
    teardown: Callable[[Any], Any] | None
    queues: tuple[str, ...] | None
    build: Build
    driver: Driver
    required: bool
    replace: Replace
    version: int | None
    init_timeout: float
    reset_timeout: float

    @_known_keywords
    def __init__(  # noqa: PLR0913 - one declaration is one call, and all but two are keywords
        self,
        initializer: Callable[[], Any] | str,
        reinitializer: Callable[[Any], Any] | str | None = None,
        *,
        check: Callable[[Any], Any] | str | None = None,
        teardown: Callable[[Any], Any] | str | None = None,
        queues: Iterable[str] | None = None,
        build: Build = "eager",
        driver: Driver = "auto",
        required: bool = False,
        replace: Replace = "keep",
        version: int | None = None,
        init_timeout: float = 600.0,
        reset_timeout: float = 60.0,
    ) -> None:
        if initializer is None:  # pyright: ignore[reportUnnecessaryComparison] - untyped callers
            _refuse("initializer is None: pass a function without arguments that returns the object")
        vars(self).update(
            initializer=_code("initializer", initializer),
            reinitializer=_code("reinitializer", reinitializer, _VALUE),
            check=_code("check", check, _VALUE),
            teardown=_code("teardown", teardown, _VALUE),
            queues=_queues(queues),
            build=_word("build", build, get_args(Build)),
            driver=_word("driver", driver, get_args(Driver)),
            required=_flag("required", required),
            replace=_word("replace", replace, get_args(Replace)),
            version=_version(version),
            init_timeout=_seconds("init_timeout", init_timeout),
            reset_timeout=_seconds("reset_timeout", reset_timeout),
        )
        if required and build == "lazy":
            _refuse('required=True with build="lazy" would wait for ever: no job could make the first read')

    @property
    def callables(
        self,
    ) -> tuple[
        Callable[[], Any],
        Callable[[Any], Any] | None,
        Callable[[Any], Any] | None,
        Callable[[Any], Any] | None,
    ]:
        """What is pickled and digested: initializer, reinitializer, check, teardown."""
        return self.initializer, self.reinitializer, self.check, self.teardown

    def options(self) -> dict[str, Any]:
        """Everything but the code, as JSON can hold it."""
        return {
            "queues": None if self.queues is None else list(self.queues),
            "build": self.build,
            "driver": self.driver,
            "required": self.required,
            "replace": self.replace,
            "version": self.version,
            "init_timeout": self.init_timeout,
            "reset_timeout": self.reset_timeout,
        }

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"an EnvironmentVariable is read-only: make a new one to change {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"an EnvironmentVariable is read-only: make a new one to change {name!r}")

    def __repr__(self) -> str:
        code = (getattr(each, "__qualname__", None) or repr(each) for each in self.callables if each is not None)
        return f"EnvironmentVariable({', '.join(code)})"


def _refuse(problem: str) -> NoReturn:
    raise InvalidDeclaration(f"EnvironmentVariable: {problem}") from None


def _code(role: str, given: object, *arguments: object) -> Callable[..., Any] | None:
    """``given`` as a callable that takes ``arguments``, a path as a PathReference."""
    if given is None:
        return None
    if isinstance(given, str):
        return _path(role, given)
    if not callable(given):
        _refuse(
            f"{role} must be callable, and this is an object of type {type(given).__name__}: pass a function "
            + ("that returns the object, because every worker makes its own" if not arguments else "of the value")
        )
    if not isinstance(given, PathReference):
        _check_signature(role, given, *arguments)
    return given


def _path(role: str, given: str) -> PathReference:
    try:
        return PathReference(given)
    except PayloadError:
        _refuse(f'{role}={given!r} is not a path: write it as "package.module:callable"')


def _check_signature(role: str, function: Callable[..., Any], *arguments: object) -> None:
    if arguments and (inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)):
        _refuse(f"{role} cannot be a generator function: only an initializer may yield")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # many classes and functions written in C have none
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        wanted = "one argument, the value" if arguments else "no arguments"
        _refuse(f"{role} is called with {wanted}, which {function!r} does not take ({error})")


def _queues(given: Iterable[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    try:
        names = (given,) if isinstance(given, str) else tuple(dict.fromkeys(given))
    except TypeError:
        _refuse(f"queues must be names of queues, not an object of type {type(given).__name__}")
    if not names or not all(isinstance(name, str) and name for name in names):  # pyright: ignore[reportUnnecessaryIsInstance]
        _refuse(f"queues={given!r} must be names of queues, at least one; leave it out to build on every worker")
    return names


def _word(option: str, given: object, words: tuple[str, ...]) -> str:
    if not isinstance(given, str) or given not in words:
        _refuse(f"{option}={given!r} must be one of {', '.join(map(repr, words))}")
    return given


def _flag(option: str, given: object) -> bool:
    if not isinstance(given, bool):
        _refuse(f"{option}={given!r} must be True or False")
    return given


def _version(given: object) -> int | None:
    if given is None:
        return None
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        _refuse(f"version={given!r} must be a positive whole number, or None to count changes of the code")
    return given


def _seconds(option: str, given: object) -> float:
    if isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given) and given > 0:
        return float(given)
    _refuse(f"{option}={given!r} must be a positive number of seconds")
