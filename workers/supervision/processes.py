"""Processes under a supervisor: started clean, known by their exit, killed with all they started."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, Final, cast

from envq.workers.config import WorkerConfig
from envq.workers.supervision import birth, signals
from envq.workers.watchman import Watchman

FORK_SERVER: Final = "envq.workers.supervision.fork_server"


class ChildProcess:
    """One process and the group it leads."""

    def __init__(self, process: BaseProcess, watchman: Watchman) -> None:
        self._process = process
        self._watchman = watchman
        self.pid = cast(int, process.pid)
        self.peak_mib = 0  # the most memory it has held, once it has ended; 0 where the system does not tell
        self.started_at = time.monotonic()
        # The process does the same for itself; whoever comes first, the group is there before it is needed.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(self.pid, self.pid)
        watchman.add(self.pid)

    @property
    def exit_code(self) -> int | None:
        """None while it runs; -N if signal N killed it."""
        self._wait()
        return self._process.exitcode

    def _wait(self) -> None:
        """Wait for it ourselves, if it has ended: whoever does is told once how much memory it has held."""
        process = cast(Any, self._process)._popen
        if process.returncode is not None:
            return
        with contextlib.suppress(ChildProcessError):  # none of ours, but a fork server's
            pid, status, used = os.wait4(self.pid, os.WNOHANG)
            if pid == self.pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                self.peak_mib = used.ru_maxrss // (1024 * 1024 if sys.platform == "darwin" else 1024)

    def send(self, number: signal.Signals) -> None:
        """Signal the process alone; nothing where it is gone."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL the process and its group, also what is left of the group after the process ended."""
        self.send(signal.SIGKILL)
        # A group keeps its number from being given to a new process, so this never hits a stranger
        # as long as something is left; and right after the end nothing else can lead such a group yet.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Release what is kept of an ended process whose group was killed."""
        self._watchman.remove(self.pid)
        self._process.close()


class Nursery:
    """Starts the processes of one supervisor."""

    def __init__(self, config: WorkerConfig, watchman: Watchman, forget: Callable[[], None]) -> None:
        self._forks = config.start_method == "fork"
        self._forget = forget
        self._watchman = watchman
        self.context: BaseContext = multiprocessing.get_context(config.start_method)
        direct = config.start_method != "forkserver"
        self._parentage = birth.Parentage(
            os.getpid(), direct, config.log_level, config.log_format, config.configure_logging
        )
        if not direct:
            cast(Any, self.context).set_forkserver_preload([FORK_SERVER])

    def start(
        self, name: str, target: Callable[..., None], *arguments: Any, ours: Sequence[Connection] = ()
    ) -> ChildProcess:
        """
        Start a process; raises OSError where the system has no room for one.

        Args:
            ours: ends of pipes that only we may keep, besides what ``forget`` closes
        """

        def forget() -> None:
            self._forget()
            for connection in ours:
                connection.close()

        gc.freeze()  # the collector of a forked process would otherwise write to, and so copy, shared pages
        # A spawned process has no copies of anything, and a closure cannot be sent to it.
        arguments = (self._parentage, forget if self._forks else None, target, arguments)
        process = cast(Any, self.context).Process(name=name, target=birth.run, args=arguments)
        if not self._parentage.direct:
            forkserver.ensure_running()  # with no signal held: it hears of its children's ends by SIGCHLD
        with signals.held():
            process.start()
        return ChildProcess(process, self._watchman)


def reap_strangers(ours: Collection[int]) -> None:
    """
    Let orphans end that became our children, as they do with process 1 of a container.

    Ours are left to be waited for by whoever started them.
    """
    if not hasattr(os, "waitid"):
        return
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in ours:
                return
            os.waitpid(ended.si_pid, os.WNOHANG)
