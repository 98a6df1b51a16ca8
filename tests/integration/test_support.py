"""The fixtures themselves: what every other test relies on without saying so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from support.processes import Process
from support.servers import PORT_OF_OTHERS, Server
from support.waiting import eventually


def test_the_server_is_ours_and_keeps_nothing(server: Server) -> None:
    with server.client() as client:
        assert server.port != PORT_OF_OTHERS
        assert client.info("persistence")["aof_enabled"] == 0
        assert [*client.config_get("save").values()] == [""]


@pytest.mark.parametrize("turn", range(2))
def test_every_test_starts_with_an_empty_database(redis_client: redis.Redis, turn: int) -> None:
    assert redis_client.dbsize() == 0
    redis_client.set("left behind", turn)


def test_a_server_comes_back_on_the_same_port(own_server: Callable[..., Server]) -> None:
    server = own_server("--appendonly", "yes", "--appendfsync", "always")
    port = server.port
    with server.client() as client:
        client.set("kept", "by the log")
        server.kill()
        server.start()
        assert client.get("kept") == b"by the log"
    assert server.port == port


def test_a_started_process_dies_with_the_test_run(tmp_path: Path) -> None:
    """Also when the run is killed without a chance to clean up."""
    run = tmp_path / "run.py"
    run.write_text(
        textwrap.dedent(
            """
            import os, pathlib, signal, sys
            from support.processes import Process
            here = pathlib.Path.cwd()
            process = Process(["sleep", "300"], cwd=here, output_file=here / "out")
            print(process.pid, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
            """
        )
    )
    tests = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, run],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tests)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL
    eventually(lambda: not is_alive(int(done.stdout)))


def test_what_a_process_leaves_behind_is_found(tmp_path: Path) -> None:
    leaves_a_child = "import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True)"
    process = Process([sys.executable, "-c", leaves_a_child], cwd=tmp_path, output_file=tmp_path / "out")
    process.wait()
    assert len(process.descendants()) == 1
    process.kill()
    eventually(lambda: process.descendants() == [])


def test_a_failing_driver_fails_the_test(run_script: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    with pytest.raises(pytest.fail.Exception, match="ZeroDivisionError"):
        run_script("1 / 0")


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody collected has ended."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"
