"""A tiny process that notices when the process that started it is gone, and kills the groups that one left behind.

On Linux the kernel kills executors along with their supervisor, but not the browsers and compilers that they started;
on other systems it kills nobody. The same goes for an executor and the copies it makes with ``--isolate``.
"""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
from typing import IO, Any, Final, cast

STOP_WITHIN_S: Final = 2.0

# Needs nothing of ours, so that it is small and starts at once. Its input ends when its owner does, however that
# ends: nobody else holds the other end of the pipe. What is written there at once is read at once.
_PROGRAM: Final = """
import os, signal, sys
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_IGN)
groups = set(map(int, sys.argv[1:]))
for line in sys.stdin.buffer:
    (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""

log = logging.getLogger("envq.worker")


class Watchman:
    """The process, started again when it dies."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pids(self) -> list[int]:
        """Its process, if there is one."""
        return [self._process.pid] if self._process is not None else []

    def tend(self) -> None:
        """See to it that there is one."""
        if self._process is not None and self._process.poll() is not None:
            self._let_go()
        if self._process is None:
            self._start()

    def add(self, group: int) -> None:
        """This group dies with us."""
        self._groups.add(group)
        self._tell(b"+", group)

    def remove(self, group: int) -> None:
        """It has ended; the number may be given to others."""
        self._groups.discard(group)
        self._tell(b"-", group)

    def forget(self) -> None:
        """In a forked child: close the copy of the pipe."""
        if self._process is not None:
            _input_of(self._process).close()

    def close(self) -> None:
        """Let it end; it kills what is left."""
        if self._process is not None:
            self._let_go()

    def _start(self) -> None:
        try:
            # A group of its own: Ctrl-C and signals for our group are none of its business.
            self._process = subprocess.Popen(
                # What it must know from its first moment on: we may be killed in the next.
                [sys.executable, "-I", "-S", "-c", _PROGRAM, *map(str, self._groups)],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        except OSError as error:
            log.debug("cannot start the watchman: %s", error)

    def _tell(self, sign: bytes, group: int) -> None:
        if self._process is not None:
            with contextlib.suppress(OSError):  # it died: the next one is told everything
                _input_of(self._process).write(b"%c%d\n" % (sign, group))

    def _let_go(self) -> None:
        process, self._process = cast("subprocess.Popen[bytes]", self._process), None
        with contextlib.suppress(OSError):
            _input_of(process).close()
        try:
            process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _input_of(process: subprocess.Popen[bytes]) -> IO[bytes]:
    return cast(Any, process).stdin
