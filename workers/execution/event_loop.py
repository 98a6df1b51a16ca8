"""The one event loop of an executor: async initializers and jobs share it, so their clients outlive a job."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar, cast
from weakref import WeakSet

from envq.workers.execution.callbacks import callbacks_wait, is_of_library, timers

P = ParamSpec("P")
T = TypeVar("T")

THREAD_PREFIX: Final = "envq-to-thread"
_CANCEL_ROUNDS: Final = 3  # a task may catch its cancellation and wait once more


class EventLoop:
    """Made at the first coroutine; the tasks a job leaves on it are cancelled before the reset."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: _CountingThreads | None = None
        self._kept: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._kept_timers: list[asyncio.TimerHandle] = []

    @property
    def in_use(self) -> bool:
        """A coroutine has run on it."""
        return self._loop is not None

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine of a job to its end."""
        loop = self._started()
        if loop.is_running():
            coroutine.close()
            raise RuntimeError(
                "an async initializer, reinitializer or check cannot run while a coroutine job is running; "
                'declare the variable with build="eager" and a synchronous check'
            )
        return loop.run_until_complete(coroutine)

    def run_for_variable(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine that builds or resets a variable: the tasks and timers it starts belong to the variable."""
        loop = self._started()
        before = asyncio.all_tasks(loop)  # what a job left and nobody could cancel stays the job's
        timers_before = timers(loop)
        value = self.run(coroutine)
        self._kept.update(asyncio.all_tasks(loop) - before)
        now = timers(loop)
        self._kept_timers = _those_in(now, self._kept_timers) + _those_not_in(now, timers_before)
        return value

    def cancel_leftovers(self) -> int:
        """
        Cancel the tasks and timers that do not belong to a variable; how many there were.

        Runs code of users: what a task does when it is cancelled may take for ever. To be called inside a limit.
        """
        if self._loop is None:
            return 0
        left = self._leftovers()
        cancelled = self._cancel_timers()
        for _ in range(_CANCEL_ROUNDS):
            if callbacks_wait(self._loop):  # what was to be called soon is called before the reset, not after it
                self._loop.run_until_complete(asyncio.sleep(0))
            if pending := self._leftovers():
                for task in pending:
                    task.cancel()
                self._loop.run_until_complete(asyncio.wait(pending, timeout=1.0))
            elif not callbacks_wait(self._loop):
                break
        return len(left) + cancelled + self._cancel_timers()

    @property
    def holds_leftovers(self) -> bool:
        """Tasks that belong to no variable go on, although they were cancelled."""
        return self._loop is not None and bool(self._leftovers())

    @property
    def busy_threads(self) -> int:
        """Calls of ``asyncio.to_thread`` that have not ended."""
        return self._threads.busy if self._threads else 0

    def abandon_threads(self) -> list[threading.Thread]:
        """Let go of the threads in which calls go on, and which end with them; later calls get others."""
        if self._loop is None or self._threads is None:
            return []
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._make_threads(self._loop)
        return [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_PREFIX)]

    def close(self) -> None:
        """Cancel everything and close the loop."""
        if self._loop is None:
            return
        self._kept.clear()
        self.cancel_leftovers()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        if self._threads:
            self._threads.shutdown(wait=False, cancel_futures=True)
        self._loop.close()
        self._loop = None

    def _cancel_timers(self) -> int:
        """Those whose callbacks are code of users: a library's belong to a client that may outlive the job."""
        left = _those_not_in(timers(self._loop), self._kept_timers)
        of_users = [timer for timer in left if not is_of_library(cast(Any, timer)._callback)]
        for timer in of_users:
            timer.cancel()
        return len(of_users)

    def _leftovers(self) -> list[asyncio.Task[Any]]:
        return [task for task in asyncio.all_tasks(self._loop) if task not in self._kept]

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._make_threads(self._loop)
            with contextlib.suppress(RuntimeError):
                asyncio.set_event_loop(self._loop)
        return self._loop

    def _make_threads(self, loop: asyncio.AbstractEventLoop) -> None:
        self._threads = _CountingThreads(thread_name_prefix=THREAD_PREFIX)
        loop.set_default_executor(self._threads)


def _those_in(
    timers: Iterable[asyncio.TimerHandle], others: Iterable[asyncio.TimerHandle]
) -> list[asyncio.TimerHandle]:
    known = set(map(id, others))
    return [timer for timer in timers if id(timer) in known]


def _those_not_in(
    timers: Iterable[asyncio.TimerHandle], others: Iterable[asyncio.TimerHandle]
) -> list[asyncio.TimerHandle]:
    known = set(map(id, others))
    return [timer for timer in timers if id(timer) not in known]


class _CountingThreads(ThreadPoolExecutor):
    """The loop's thread pool; knows whether anything still runs in it."""

    busy = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        with _counting:
            self.busy += 1
        future = super().submit(fn, *args, **kwargs)
        future.add_done_callback(self._ended)
        return future

    def _ended(self, _future: Future[Any]) -> None:
        with _counting:
            self.busy -= 1


_counting = threading.Lock()
