"""A host of its own for a process: a network namespace behind a cable that can be cut; it takes root and iproute2."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest


class Host:
    """A namespace, and the cable between it and everybody else."""

    def __init__(self) -> None:
        name = secrets.token_hex(4)
        self.namespace = f"envq-{name}"
        self._near, self._far = f"n{name}", f"f{name}"
        network = f"10.{secrets.randbelow(100) + 100}.{secrets.randbelow(250)}"
        self.outside, self._inside = f"{network}.1", f"{network}.2"  # addresses of this host and of that one

    def command(self, command: Sequence[str | Path]) -> list[str | Path]:
        """The same command on that host."""
        return ["ip", "netns", "exec", self.namespace, *command]

    def cut(self) -> None:
        """Nothing comes through any more, and nobody is told."""
        ip("link", "set", self._near, "down")

    def mend(self) -> None:
        """All comes through again."""
        ip("link", "set", self._near, "up")

    def make(self) -> None:
        """Raises CalledProcessError or OSError where that is not allowed."""
        ip("netns", "add", self.namespace)
        ip("link", "add", self._near, "type", "veth", "peer", "name", self._far, "netns", self.namespace)
        ip("addr", "add", f"{self.outside}/30", "dev", self._near)
        ip("link", "set", self._near, "up")
        for change in (("addr", "add", f"{self._inside}/30", "dev", self._far), ("link", "set", self._far, "up")):
            ip("-n", self.namespace, *change)

    def remove(self) -> None:
        """The cable goes with it."""
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            ip("netns", "del", self.namespace)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=10)


@contextlib.contextmanager
def another_host() -> Iterator[Host]:
    """Such a host. Where that is not allowed the test is left out aloud; in CI it fails."""
    host = Host()
    try:
        host.make()
    except (OSError, subprocess.CalledProcessError) as error:
        host.remove()
        why = f"network namespaces need root and iproute2: {getattr(error, 'stderr', '') or error}"
        if "CI" in os.environ:
            pytest.fail(why)
        pytest.skip(why)
    try:
        yield host
    finally:
        host.remove()
