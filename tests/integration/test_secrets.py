"""Passwords and keys are told nowhere: not in logs, errors, help, command lines, nor in Redis."""

from __future__ import annotations

from collections.abc import Callable
from operator import add
from pathlib import Path
from urllib.parse import quote

import pytest
from support.cli import envq as command
from support.processes import FAMILY_VARIABLE
from support.servers import Server
from support.signing import KEY, keys
from support.waiting import eventually
from support.workers import WorkerProcess

import envq
from envq.driver.client import driver_scope, swap_default

PASSWORD = "pa@ss/w:rd-9f3a"
SECRETS = (PASSWORD, quote(PASSWORD, safe=""), KEY)
pytestmark = pytest.mark.timeout(120)


def leaked(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


def command_lines(worker: WorkerProcess) -> str:
    """Of the worker and of all that it started."""
    mark = f"{FAMILY_VARIABLE}={worker.family}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    assert len(found) >= 3, "the worker, an executor and the scheduler at least"
    return "\n".join(found)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_nobody_is_told(own_server: Callable[..., Server], tmp_path: Path, method: str) -> None:
    server = own_server("--rdbcompression", "no")  # so that DUMP shows what is there
    url = f"redis://someone:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}/0"
    env = {"ENVQ_SIGNING_KEY": KEY}
    with server.client() as admin, keys(env):
        admin.execute_command("ACL", "SETUSER", "someone", "on", f">{PASSWORD}", "~*", "&*", "+@all")
        driver_scope.close()
        before = swap_default(None)
        worker = WorkerProcess("-v", "--start-method", method, url=url, directory=tmp_path, env=env)
        try:
            eventually(lambda: admin.scard("rq:workers") == 1, 20)
            client = envq.connect(url)
            envq.env.secret = envq.EnvironmentVariable(lambda: 1)
            assert envq.get(envq.Queue().enqueue(add, 1, 2), timeout=20) == 3
            with pytest.raises(envq.JobFailed) as failed:
                envq.get(envq.Queue().enqueue(lambda: 1 / 0), timeout=20)
            told = [repr(client), repr(client.settings), str(failed.value), command_lines(worker)]
            for arguments in (["info"], ["config"], ["env", "show", "secret"], ["health"], ["worker", "--help"]):
                done = command(*arguments, env=env | {"ENVQ_URL": url})
                told += [done.stdout, done.stderr]
            admin.execute_command("ACL", "SETUSER", "someone", "resetpass", ">another")
            for arguments in (["info"], ["worker"], ["--debug", "info"]):
                done = command(*arguments, env=env | {"ENVQ_URL": url})
                assert done.returncode != 0
                told += [done.stdout, done.stderr]
            for key in admin.scan_iter():
                told.append(str(admin.dump(key)))
        finally:
            driver_scope.close()
            swap_default(before)
            worker.end()
        assert leaked(worker.output) == []
        assert leaked("\n".join(told)) == []
