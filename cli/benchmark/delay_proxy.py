"""A loopback proxy that holds back all that passes: a server that is not next door. Runs as a process of its own.

``python -m envq.cli.benchmark.delay_proxy MILLISECONDS HOST PORT``, or a socket's path in place of both, prints the
port on which it listens. What arrives in one direction leaves so many milliseconds later, in the same order.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

HELD_LIMIT: Final = 16 * 1024 * 1024  # bytes in one direction; more is left to the sender's kernel
_END: Final = b""


class End(asyncio.Protocol):
    """One end of a connection: what arrives here leaves at ``other``, ``delay_s`` later."""

    def __init__(self, delay_s: float, connect: Callable[[End], Awaitable[None]] | None = None) -> None:
        self.other: End | None = None
        self._delay_s = delay_s
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._held: deque[tuple[float, bytes]] = deque()
        self._held_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._paused = False
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._connect is not None:
            self._connecting = self._loop.create_task(self._open(self._connect))

    async def _open(self, connect: Callable[[End], Awaitable[None]]) -> None:
        try:
            await connect(self)
        except OSError:
            self.transport.abort()
        else:
            self._send_what_is_due()

    def data_received(self, data: bytes) -> None:
        self._hold(data)
        if self._held_bytes > HELD_LIMIT and not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._hold(_END)

    def resume_writing(self) -> None:
        """The other side may read on: what it sent before has left here."""
        if self.other is not None:
            self.other.read_on()

    def read_on(self) -> None:
        """Take more from our sender, where there is room for it."""
        if self._paused and self._held_bytes <= HELD_LIMIT:
            self._paused = False
            self.transport.resume_reading()

    def _hold(self, data: bytes) -> None:
        self._held.append((self._loop.time() + self._delay_s, data))
        self._held_bytes += len(data)
        if self._timer is None:
            self._wake_at(self._held[0][0])

    def _wake_at(self, when: float) -> None:
        self._timer = self._loop.call_at(when, self._send_what_is_due)

    def _send_what_is_due(self) -> None:
        self._timer = None
        if self.other is None:
            return  # still connecting; that looks again
        now = self._loop.time()
        while self._held and self._held[0][0] <= now:
            _, data = self._held.popleft()
            self._held_bytes -= len(data)
            if data:
                self.other.transport.write(data)
            else:
                self.other.transport.close()
        if self.other.transport.get_write_buffer_size() <= HELD_LIMIT:
            self.read_on()
        if self._held:
            self._wake_at(self._held[0][0])


async def serve(delay_s: float, target: tuple[str, ...], listening: Callable[[int], None]) -> None:
    """Listen on a free loopback port, told to ``listening``, until cancelled."""
    loop = asyncio.get_running_loop()

    async def connect(near: End) -> None:
        far = End(delay_s)
        if len(target) == 1:
            await loop.create_unix_connection(lambda: far, target[0])
        else:
            await loop.create_connection(lambda: far, target[0], int(target[1]))
        near.other, far.other = far, near

    server = await loop.create_server(lambda: End(delay_s, connect), "127.0.0.1", 0)
    listening(server.sockets[0].getsockname()[1])
    async with server:
        await server.serve_forever()


def precise_loop() -> asyncio.AbstractEventLoop:
    """A loop that wakes to the microsecond; the one that asyncio takes on Linux rounds up to milliseconds."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def main(milliseconds: str, *target: str) -> None:
    """Serve until the process is ended."""

    def listening(port: int) -> None:
        print(port, flush=True)

    with asyncio.Runner(loop_factory=cast(Any, precise_loop)) as runner:
        runner.run(serve(float(milliseconds) / 1000, target, listening))


if __name__ == "__main__":
    main(*sys.argv[1:])
