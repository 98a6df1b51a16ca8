"""The proxy of `envq bench --rtt-ms`: holds back what passes, both ways, and changes neither content nor order."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import redis
from support.servers import Server

from envq.cli.benchmark.delay import delayed
from envq.cli.benchmark.delay_proxy import HELD_LIMIT, serve

LONG_S = 1000.0
PASSES = 50  # of the loop, in which whatever is not held back arrives


class SteeredLoop(asyncio.SelectorEventLoop):
    """A loop whose clock is put forward by the test."""

    ahead_s = 0.0

    def __init__(self) -> None:
        super().__init__(selectors.SelectSelector())

    def time(self) -> float:
        return super().time() + self.ahead_s


class Peer:
    """A server behind the proxy that takes one connection, read and written by the test."""

    def __init__(self) -> None:
        self.streams: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Future()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.streams.set_result((reader, writer))


def steered(main: Callable[[SteeredLoop], Coroutine[Any, Any, None]]) -> None:
    loop = SteeredLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main(loop))


async def start_proxy(delay_s: float, *target: str) -> tuple[int, asyncio.Task[None]]:
    port: asyncio.Future[int] = asyncio.Future()
    task = asyncio.create_task(serve(delay_s, target, port.set_result))
    return await port, task


async def stop(task: asyncio.Task[None], *writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
    await passes()  # in which the proxy sees that both sides have closed
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def passes() -> None:
    for _ in range(PASSES):
        await asyncio.sleep(0)


async def nothing_arrives_at(reader: asyncio.StreamReader) -> None:
    reading = asyncio.ensure_future(reader.read(1))
    await passes()
    assert not reading.done()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_what_is_sent_arrives_when_its_time_has_come_in_order_and_both_ways(kind: str, tmp_path: Path) -> None:
    async def main(loop: SteeredLoop) -> None:
        peer = Peer()
        if kind == "unix":
            target = [str(tmp_path / "peer.sock")]
            server = await asyncio.start_unix_server(peer.take, *target)
        else:
            server = await asyncio.start_server(peer.take, "127.0.0.1", 0)
            target = ["127.0.0.1", str(server.sockets[0].getsockname()[1])]
        port, proxy = await start_proxy(LONG_S, *target)
        near_reader, near_writer = await asyncio.open_connection("127.0.0.1", port)
        far_reader, far_writer = await peer.streams

        near_writer.write(b"first ")
        await nothing_arrives_at(far_reader)
        near_writer.write(b"second")
        far_writer.write(b"reply")
        await nothing_arrives_at(far_reader)
        await nothing_arrives_at(near_reader)

        loop.ahead_s += LONG_S
        assert await far_reader.readexactly(12) == b"first second"
        assert await near_reader.readexactly(5) == b"reply"

        near_writer.write(b"the end")
        near_writer.close()
        await nothing_arrives_at(far_reader)
        loop.ahead_s += LONG_S
        assert await far_reader.read() == b"the end"
        await stop(proxy, near_writer, far_writer)
        server.close()

    steered(main)


def test_more_than_it_holds_passes_unchanged() -> None:
    async def main(loop: SteeredLoop) -> None:
        peer = Peer()
        server = await asyncio.start_server(peer.take, "127.0.0.1", 0)
        port, proxy = await start_proxy(0.0001, "127.0.0.1", str(server.sockets[0].getsockname()[1]))
        near_reader, near_writer = await asyncio.open_connection("127.0.0.1", port)
        far_reader, far_writer = await peer.streams
        sent = b"".join(number.to_bytes(4, "big") for number in range(HELD_LIMIT // 2))
        near_writer.write(sent)
        assert await far_reader.readexactly(len(sent)) == sent
        far_writer.write(sent)
        assert await near_reader.readexactly(len(sent)) == sent
        await stop(proxy, near_writer, far_writer)
        server.close()

    steered(main)


def test_a_server_that_is_not_there_ends_the_connection(tmp_path: Path) -> None:
    async def main(loop: SteeredLoop) -> None:
        port, proxy = await start_proxy(0.0, str(tmp_path / "nobody.sock"))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        await stop(proxy, writer)

    steered(main)


def test_redis_is_reached_through_it_by_port_and_by_socket(server: Server) -> None:
    for url in (server.url(1), f"unix://{server.socket_path}?db=1"):
        with delayed(url, rtt_ms=0.5) as slower, redis.Redis.from_url(slower) as client:
            assert slower != url
            with client.pipeline() as pipeline:
                for number in range(300):
                    pipeline.echo(f"{number}" * 100)
                assert pipeline.execute() == [f"{number}".encode() * 100 for number in range(300)]
            assert client.client_info()["db"] == 1


def test_without_a_delay_there_is_no_proxy() -> None:
    with delayed("redis://localhost:6390/0", rtt_ms=0.0) as same:
        assert same == "redis://localhost:6390/0"
