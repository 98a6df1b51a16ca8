"""C9: a value that its check refuses is rebuilt before the read returns."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from support.diary import Diary
from support.jobs import run

from envq.driver.client import Client
from envq.environment import env

pytestmark = pytest.mark.usefixtures("deployment")
Declare = Callable[..., None]


def test_it_runs_once_a_job_and_only_where_the_value_is_read(client: Client, declare: Declare, diary: Diary) -> None:
    write = diary.write

    def check(value: list[int]) -> bool:
        write("checked")
        return True

    declare("x", list, lambda value: value, check=check)
    run(lambda: 1)
    assert diary.entries == []
    run(lambda: [env.x for _ in range(3)])
    assert diary.entries == ["checked"]
    run(lambda: env.x)
    assert diary.entries == ["checked"] * 2


@pytest.mark.parametrize("answer", ["False", "None", "1/0", "[][0]"])
def test_a_false_answer_or_an_exception_rebuilds(client: Client, declare: Declare, diary: Diary, answer: str) -> None:
    write = diary.write

    def make() -> dict[str, bool]:
        write("built")
        return {"well": True}

    declare(
        "x",
        make,
        lambda value: value,
        check=lambda value: value["well"] or eval(answer),
        teardown=lambda value: write("torn down"),
    )
    run(lambda: env.x.update(well=False))
    assert run(lambda: env.x) == {"well": True}
    assert diary.entries == ["built", "torn down", "built"]


class Echo:
    """A TCP server that answers each byte, and can drop all its connections as a database does at night."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def drop_connections(self) -> None:
        while self._open:
            connection = self._open.pop()
            connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def close(self) -> None:
        self._listener.close()
        self.drop_connections()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        try:
            while data := connection.recv(1):
                connection.sendall(data)
        except OSError:
            return


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


def test_a_connection_that_the_server_closed_is_made_anew(
    client: Client, declare: Declare, diary: Diary, echo: Echo
) -> None:
    write, port = diary.write, echo.port

    def connect() -> object:
        import socket

        write("connected")
        return socket.create_connection(("127.0.0.1", port))

    def alive(connection: socket.socket) -> bool:
        connection.sendall(b"?")
        return connection.recv(1) == b"?"

    def ask() -> bytes:
        env.database.sendall(b"!")
        return env.database.recv(1)

    declare("database", connect, lambda value: value, check=alive, teardown=lambda value: value.close())
    assert [run(ask) for _ in range(2)] == [b"!"] * 2
    assert diary.entries == ["connected"]
    echo.drop_connections()
    assert run(ask) == b"!"
    assert diary.entries == ["connected"] * 2
