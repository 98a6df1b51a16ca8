"""What every process that a supervisor starts does before anything else."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from envq.workers import logs
from envq.workers.supervision import signals

_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True)
class Parentage:
    """What a new process must know of its supervisor."""

    pid: int
    direct: bool  # it is the parent; else that is a server which dies with it
    log_level: str
    log_format: str
    configure_logging: bool


def run(
    parentage: Parentage,
    forget: Callable[[], None] | None,
    target: Callable[..., None],
    arguments: tuple[Any, ...],
) -> None:
    """
    The target of every process: become a child in good order, then be what is asked for.

    Args:
        forget: closes copies of the supervisor's descriptors; None where there are none
    """
    signals.forget_handlers()
    _lead_own_group()
    _die_with(parentage)
    _no_standard_input()
    if forget is not None:
        forget()
    with contextlib.suppress(OSError, ValueError, AttributeError, RuntimeError):
        faulthandler.register(signal.SIGTTIN, chain=False)  # no stderr with a descriptor: no stacks
    if parentage.configure_logging:
        logs.configure(parentage.log_level, parentage.log_format)
    signals.release_held()
    target(*arguments)


def _lead_own_group() -> None:
    """So that all it starts (browsers, compilers) can be killed with it, and Ctrl-C reaches none of them."""
    with contextlib.suppress(PermissionError):
        os.setpgid(0, 0)


def die_with_parent() -> None:
    """On Linux the kernel kills this process when its parent is gone; elsewhere its pipe must tell it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _die_with(parentage: Parentage) -> None:
    die_with_parent()
    # Gone before the kernel was asked: nobody would ever tell us.
    supervisor = multiprocessing.parent_process()
    alone = os.getppid() != parentage.pid if parentage.direct else supervisor is None or not supervisor.is_alive()
    if alone:
        os._exit(1)


def _no_standard_input() -> None:
    """A background group that reads the terminal would be stopped by SIGTTIN."""
    null = os.open(os.devnull, os.O_RDONLY)
    if null != 0:
        os.dup2(null, 0)
        os.close(null)
