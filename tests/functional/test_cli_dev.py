"""`envq dev`, `envq.local` and the embedded server: all there at once, all gone at the end."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from support.cli import COMMAND, envq
from support.processes import Process, clean_environment
from support.waiting import eventually

from envq.embedded import EmbeddedServer
from envq.errors import ServerUnavailable

DRIVER = """
import sys
import envq

@envq.task
def double(number):
    print("doubling", number)
    return 2 * number

"""


def test_the_server_answers_inside_the_block_and_is_gone_after_it() -> None:
    with EmbeddedServer() as server:
        assert server.port != 6379
        with redis.Redis.from_url(server.url) as client:
            assert client.ping()
            assert client.config_get("save") == {"save": ""}
        pid = server.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_port_that_is_taken_is_a_clear_error() -> None:
    with EmbeddedServer() as first, pytest.raises(ServerUnavailable, match="already in use"):
        EmbeddedServer(port=first.port).start()


def test_data_is_kept_in_a_folder_that_was_given(tmp_path: Path) -> None:
    for expected in (1, 2):
        with EmbeddedServer(data_dir=tmp_path) as server, redis.Redis.from_url(server.url) as client:
            assert client.incr("starts") == expected


def test_the_server_dies_with_the_process_that_started_it(start_process: Callable[..., Process]) -> None:
    program = """
import signal
from envq.embedded import EmbeddedServer
server = EmbeddedServer().start()
print(server.pid, flush=True)
signal.pause()
"""
    process = start_process([COMMAND[0], "-P", "-c", program])
    eventually(lambda: process.output.strip().isdigit())
    pid = int(process.output)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    eventually(lambda: not _lives(pid))


def _lives(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_dev_runs_a_script_against_its_own_deployment_and_ends_with_its_code(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER + "print(envq.get(double.enqueue(21), timeout=20), sys.argv[1:])\nsys.exit(7)\n")
    done = envq("dev", "-w", "1", str(script), "--flag", "x", cwd=tmp_path, timeout=50)
    assert done.returncode == 7, done.stderr
    assert "42 ['--flag', 'x']" in done.stdout
    assert re.search(r"^\[1 double [0-9a-f-]+\] doubling 21$", done.stdout, re.MULTILINE)


def test_dev_without_a_terminal_prints_the_url_and_waits(start_process: Callable[..., Process]) -> None:
    process = start_process([*COMMAND, "dev", "-w", "1"])
    found = eventually(lambda: re.search(r"export ENVQ_URL=(\S+)\n", process.output) or False, timeout=30)
    assert envq("health", "--ready", url=found[1]).returncode == 0
    assert process.stop() == 0
    assert process.descendants() == []


def test_local_connects_a_script_and_gives_everything_back(
    run_script: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = run_script(
        DRIVER
        + """
with envq.local(workers=1) as client:
    print(envq.get(double.enqueue(4), timeout=20))
    url = client.settings.url
print(envq.connect().settings.url != url)
"""
    )
    lines = done.stdout.splitlines()
    assert "8" in lines
    assert lines[-1] == "True"
    assert any(re.fullmatch(r"\[1 double [0-9a-f-]+\] doubling 4", line) for line in lines)


def test_local_has_what_was_declared_for_another_deployment(
    run_script: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = run_script("""
        import envq
        def make():
            return 42
        @envq.task
        def read():
            return envq.env.answer
        envq.connect()
        envq.env.answer = envq.EnvironmentVariable(make)
        for _ in range(2):
            with envq.local(workers=1):
                print(envq.get(read.enqueue(), timeout=20))
    """)
    assert done.stdout.split() == ["42", "42"]


def test_local_says_at_once_why_a_worker_did_not_start(
    run_script: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = run_script("import envq\nwith envq.local(options=['--no-such-flag']):\n    pass\n", check=False)
    assert "ended with code 2" in done.stderr
    assert "--no-such-flag" in done.stderr


class Prompt:
    """`envq dev` on a terminal of its own."""

    def __init__(self, cwd: Path) -> None:
        self._master, slave = pty.openpty()
        self._process = subprocess.Popen(
            [*COMMAND, "dev", "-w", "1"],
            cwd=cwd,
            env=clean_environment({"TERM": "xterm", "COLUMNS": "200"}),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.output = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def expect(self, pattern: str, timeout: float = 30.0) -> None:
        deadline = time.monotonic() + timeout
        while not re.search(pattern, self.output):
            ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{pattern!r} did not come; there was:\n{self.output}"
            self.output += os.read(self._master, 65536).decode(errors="replace")

    def end(self) -> int:
        self.type("\x15\x04")
        try:
            return self._process.wait(20)
        finally:
            self._process.kill()
            os.close(self._master)


@pytest.fixture
def prompt(tmp_path: Path) -> Iterator[Prompt]:
    made = Prompt(tmp_path)
    made.expect(">>> ")
    yield made
    assert made.end() == 0


def test_the_prompt_stays_usable_while_workers_print(prompt: Prompt) -> None:
    prompt.type("def shout(): import time; time.sleep(0.5); print('from the worker')\n\n")
    prompt.type("job = envq.task(shout).enqueue()\n")
    prompt.type("half a li")
    prompt.expect(r"\[1 shout [0-9a-f-]+\] from the worker\r\n>>> half a li")
    prompt.type("\x15print(6 * 7)\n")
    prompt.expect(r"\n42\r\n")
