"""A supervisor as a process of its own, with real executors or with stand-ins that do as they are told."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import redis
import rq

from envq.settings import Settings
from envq.store.executor_store import ExecutorStore
from envq.store.keys import Keys
from envq.workers import logs
from envq.workers.config import ExecutorConfig, WorkerConfig
from envq.workers.lease import Lease
from envq.workers.ledger import Ledger
from envq.workers.slot import Phase, Slot
from envq.workers.supervision.supervisor import Supervisor
from support.claiming import claim
from support.processes import Process

PR_SET_CHILD_SUBREAPER = 36
TESTS = Path(__file__).parents[1]


def command(
    url: str, namespace: str, *, stand_in: bool = False, adopt_orphans: bool = False, **options: Any
) -> list[str | Path]:
    """The command line of a supervisor with these fields of WorkerConfig."""
    given = {"url": url, "namespace": namespace, "options": options}
    text = json.dumps(given | {"stand_in": stand_in, "adopt_orphans": adopt_orphans})
    program = f"import sys; sys.path.insert(0, {str(TESTS)!r}); from support.supervised import main; main()"
    return [sys.executable, "-c", program, text]


def main() -> None:
    given = json.loads(sys.argv[1])
    logs.configure("DEBUG")
    if given["adopt_orphans"]:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    settings = Settings(url=given["url"], namespace=given["namespace"])
    options = given["options"]
    if "lease" in options:
        options["lease"] = Lease(options["lease"])
    config = WorkerConfig(settings, log_level="DEBUG", **options)
    supervisor = Supervisor(config, run_stand_in) if given["stand_in"] else Supervisor(config)
    sys.exit(supervisor.run())


def begun(worker: Process, job: rq.job.Job) -> bool:
    """Whether its own code has: Redis tells of a job as started once it is claimed."""
    return f"→ {job.description.partition('(')[0]} {job.id}" in worker.output


def acts(namespace: str) -> str:
    """List: what the next stand-ins do, one entry each; an empty list: they are idle until they are stopped."""
    return f"{namespace}:acts"


def at_work(namespace: str) -> str:
    """String: the job that a stand-in hangs in, once its slot says so."""
    return f"{namespace}:at_work"


def stopped(namespace: str) -> str:
    """String: how many stand-ins were told to stop."""
    return f"{namespace}:stopped"


def woken(namespace: str) -> str:
    """String: how many messages to wake up the stand-ins got."""
    return f"{namespace}:woken"


def run_stand_in(config: ExecutorConfig, slot: Slot, _ledger: Ledger, control: Connection) -> None:
    """An executor that registers nothing and runs nothing but the act it finds."""
    settings = config.worker.settings
    connection = redis.Redis.from_url(settings.url)
    control.send_bytes(b"born")
    slot.write(Phase.IDLE)
    words = (connection.lpop(acts(settings.namespace)) or b"idle").decode().split()
    ACTS[words[0]](connection, config, slot, *words[1:])
    while True:
        message = control.recv_bytes()
        if message == b"stop":
            connection.incr(stopped(settings.namespace))
            sys.exit(0)
        if message == b"wake":
            connection.incr(woken(settings.namespace))


def _hang() -> None:
    signal.signal(signal.SIGUSR1, lambda *_: None)
    while True:
        signal.pause()


def _claim(connection: redis.Redis, config: ExecutorConfig, slot: Slot) -> str:
    """Take up to three jobs; the first is about to start."""
    keys, silence_s = Keys(config.worker.settings.namespace), config.worker.lease.silence_s
    names = [keys.queue_name(name) for name in config.worker.queues]
    [claimed, *_] = claim(connection, keys, config.name, names, wanted=3, silence_s=silence_s).jobs
    slot.write(Phase.PREPARING, claimed.job_id)
    return claimed.job_id


def _run(connection: redis.Redis, config: ExecutorConfig, slot: Slot, limit_s: str = "0") -> None:
    """Take jobs and hang in the first of them."""
    job_id = _claim(connection, config, slot)
    slot.write(Phase.RUNNING, job_id, "e1", _deadline(limit_s))
    connection.set(at_work(config.worker.settings.namespace), job_id)
    _hang()


def _run_and_build(connection: redis.Redis, config: ExecutorConfig, slot: Slot, name: str) -> None:
    """Take jobs and hang in a build inside the first of them."""
    job_id = _claim(connection, config, slot)
    slot.write(Phase.RUNNING, job_id, "e1")
    slot.write(Phase.BUILDING, name, "1")
    connection.set(at_work(config.worker.settings.namespace), job_id)
    _hang()


def _prepare(connection: redis.Redis, config: ExecutorConfig, slot: Slot) -> None:
    """Take jobs and hang before the first of them starts."""
    _claim(connection, config, slot)
    _hang()


def _deadline(limit_s: str) -> float:
    return time.monotonic() + float(limit_s) if float(limit_s) else 0.0


def _build(_: redis.Redis, __: ExecutorConfig, slot: Slot, name: str, limit_s: str = "0") -> None:
    """Hang in a build between jobs."""
    slot.write(Phase.BUILDING, name, "1", _deadline(limit_s))
    _hang()


def _exit(_: redis.Redis, __: ExecutorConfig, slot: Slot, code: str, jobs: str = "0") -> None:
    """Exit after so many jobs."""
    for _number in range(int(jobs)):
        slot.end_job()
    slot.write(Phase.STOPPING)
    sys.exit(int(code))


def _deaf(connection: redis.Redis, config: ExecutorConfig, __: Slot) -> None:
    """Read nothing from the control pipe, and leave a process behind."""
    subprocess.Popen(["sleep", "1000"])
    connection.set(f"{config.worker.settings.namespace}:deaf", os.getpid())
    while True:
        signal.pause()


def _idle(*_: object) -> None:
    """Wait for messages."""


ACTS: dict[str, Callable[..., None]] = {
    "run": _run,
    "run-and-build": _run_and_build,
    "prepare": _prepare,
    "build": _build,
    "exit": _exit,
    "deaf": _deaf,
    "idle": _idle,
}


def executors_of(client: redis.Redis, namespace: str) -> list[str]:
    """Names of the executors that registered."""
    database = client.connection_pool.connection_kwargs.get("db") or 0
    return [view.info.name for view in ExecutorStore(client, Keys(namespace, int(database))).all()]
