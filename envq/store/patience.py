"""How long a driver tries again while its server cannot be reached."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, Self

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import AuthorizationError
from redis.retry import Retry

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 0.5
_HOPELESS: Final = (redis.AuthenticationError, AuthorizationError)


class Patience(Retry):
    """
    redis-py's retries, limited by time instead of number; one object for all connections of a client.

    Attributes:
        seconds: after so long since the first try the error is raised; 0 for one try
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(ExponentialBackoff(cap=LONGEST_PAUSE_S, base=FIRST_PAUSE_S), -1)
        self.seconds = seconds
        self._limit = threading.local()

    def __deepcopy__(self, _memo: object) -> Self:
        return self  # redis-py copies it for each connection

    @contextmanager
    def at_most(self, seconds: float) -> Generator[None]:
        """What this thread asks inside the block is given up after so long."""
        before = getattr(self._limit, "seconds", None)
        self._limit.seconds = seconds
        try:
            yield
        finally:
            self._limit.seconds = before

    @property
    def limit_s(self) -> float:
        """What holds for this thread now."""
        limit: float | None = getattr(self._limit, "seconds", None)
        return self.seconds if limit is None else min(limit, self.seconds)

    def call_with_retry(
        self,
        do: Callable[[], Any],
        fail: Callable[..., Any],
        is_retryable: Callable[[Exception], bool] | None = None,
        with_failure_count: bool = False,
    ) -> Any:
        """As redis-py calls it."""
        began, failures, pause_s = time.monotonic(), 0, FIRST_PAUSE_S
        while True:
            try:
                return do()
            except self._supported_errors as error:  # pyright: ignore[reportGeneralTypeIssues] - given by redis-py
                if is_retryable is not None and not is_retryable(error):
                    raise
                failures += 1
                fail(error, failures) if with_failure_count else fail(error)
                if given_up(error) or isinstance(error, _HOPELESS):
                    raise
                if time.monotonic() + pause_s - began >= self.limit_s:
                    _give_up(error)
                    raise
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


def given_up(error: BaseException) -> bool:
    """Whether the time was up: of calls inside each other, the outer ones then do not begin anew."""
    return getattr(error, "envq_given_up", False)


def _give_up(error: Exception) -> None:
    error.envq_given_up = True  # type: ignore[attr-defined]
