"""A proxy in front of a server that cuts a connection at a chosen moment of a chosen command, or swallows packets."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable
from typing import Final

CUT_BEFORE: Final = "before the server sees it"
CUT_AFTER: Final = "after the server has acted, before its reply"
CUT_INSIDE: Final = "in the middle of the reply"
CUTS: Final = (CUT_BEFORE, CUT_AFTER, CUT_INSIDE)
CUT_WITHIN: Final = "in the middle of the request"
_CHUNK: Final = 1 << 20
_LONGEST_WAIT_S: Final = 10.0


class CuttingProxy:
    """Passes everything on, but for what ``cut`` asks."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._mark, self._where, self._left = b"", "", 0
        self._seen, self._cut_at = 0, 0
        self._swallows = False
        self.cuts = 0  # that were made
        self.before_cut: Callable[[], object] = lambda: None  # called when the server has acted, before it is cut
        self._closed = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Of database 0 behind it."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def left(self) -> int:
        """How many cuts are still to come."""
        return self._left

    def cut(self, mark: bytes, where: str, times: int) -> None:
        """Cut the next so many connections over which bytes are sent that contain the mark."""
        with self._lock:
            self._mark, self._where, self._left, self._cut_at = mark, where, times, 0

    def cut_at(self, number: int, where: str) -> None:
        """Cut where the so manieth request from now on is sent, over whichever connection; 0: never."""
        with self._lock:
            self._seen, self._cut_at, self._where, self._mark = 0, number, where, b""
            self._left = 1 if number else 0

    @property
    def seen(self) -> int:
        """How many requests came since `cut_at`."""
        return self._seen

    def swallow(self, swallows: bool = True) -> None:
        """From now on let nothing through, in either direction, and leave all connections open."""
        self._swallows = swallows

    def close(self) -> None:
        """End all connections."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(_LONGEST_WAIT_S)

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(near,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._server_port)) as far:
            while not self._closed:
                for ready in select.select([near, far], [], [], 0.1)[0]:
                    data = ready.recv(_CHUNK)
                    if not data:
                        return
                    if self._swallows:
                        continue
                    if ready is far:
                        near.sendall(data)
                    elif where := self._due(data):
                        self._cut(near, far, data, where)
                        return
                    else:
                        far.sendall(data)

    def _due(self, data: bytes) -> str:
        with self._lock:
            self._seen += 1
            if self._left <= 0 or self._mark not in data or (self._cut_at and self._seen != self._cut_at):
                return ""
            self._left -= 1
            self.cuts += 1
            return self._where

    def _cut(self, near: socket.socket, far: socket.socket, data: bytes, where: str) -> None:
        if where == CUT_BEFORE:
            return
        if where == CUT_WITHIN:
            far.sendall(data[: len(data) // 2])
            return
        far.sendall(data)
        far.settimeout(_LONGEST_WAIT_S)
        reply = far.recv(_CHUNK)  # one piece of it at least: the server has acted
        self.before_cut()
        if where == CUT_INSIDE:
            near.sendall(reply[: len(reply) // 2])
