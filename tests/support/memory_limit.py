"""A limit of memory that the kernel enforces by killing, as in a container: a control group, which takes root."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.waiting import eventually

_ROOT = Path("/sys/fs/cgroup")
_GROUPS = ((_ROOT / "memory", "memory.limit_in_bytes"), (_ROOT, "memory.max"))  # version 1, version 2


@contextlib.contextmanager
def memory_limit(limit_bytes: int) -> Iterator[Callable[[int], object]]:
    """A function that puts a process under the limit, by pid; the test is left out where that is not allowed."""
    group, why = _make(limit_bytes)
    if group is None:
        pytest.skip(f"no control group with a limit of memory can be made here: {why}")
    try:
        yield lambda pid: (group / "cgroup.procs").write_text(str(pid))
    finally:
        eventually(lambda: _remove(group))


def _make(limit_bytes: int) -> tuple[Path | None, str]:
    why = "there is none"
    for parent, limit in _GROUPS:
        group = parent / f"envq-test-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        try:
            if parent == _ROOT:
                (parent / "cgroup.subtree_control").write_text("+memory")
            group.mkdir()
        except OSError as error:
            why = str(error)
            continue
        try:
            (group / limit).write_text(str(limit_bytes))
        except OSError as error:
            why = str(error)
            group.rmdir()
            continue
        return group, ""
    return None, why


def _remove(group: Path) -> bool:
    """Possible once its processes are gone."""
    try:
        group.rmdir()
    except OSError:
        return False
    return True
