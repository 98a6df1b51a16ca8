"""A loopback TCP proxy that holds every chunk for half a round trip in each direction: a server that is not next door.

python -m harness.rtt_proxy LISTEN_PORT SERVER_PORT RTT_MS
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import sys


class Half(asyncio.Protocol):
    """One direction: what arrives here leaves through ``other`` later, in order."""

    transport: asyncio.Transport

    def __init__(self, delay_s: float, other: Half | None = None, *, server_port: int | None = None) -> None:
        self._delay_s = delay_s
        self._other = other
        self._server_port = server_port
        self._early: list[bytes] = []
        self._opening: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._server_port is not None:
            self._opening = asyncio.ensure_future(self._open(self._server_port))

    async def _open(self, port: int) -> None:
        other = Half(self._delay_s, self)
        await asyncio.get_running_loop().create_connection(lambda: other, "127.0.0.1", port)
        self._other = other
        for data in self._early:
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        if self._other is None:
            self._early.append(data)
        else:
            asyncio.get_running_loop().call_later(self._delay_s, self._other.transport.write, data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._other is not None:
            asyncio.get_running_loop().call_later(self._delay_s, self._other.transport.close)


async def serve(listen_port: int, server_port: int, rtt_ms: float) -> None:
    server = await asyncio.get_running_loop().create_server(
        lambda: Half(rtt_ms / 2000, server_port=server_port), "127.0.0.1", listen_port
    )
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    # select(2) takes microseconds; epoll, asyncio's choice, would round every delay up to a millisecond.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        runner.run(serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
