"""How long until a job runs again whose process, or whose whole worker, was killed by SIGKILL.

All peers at the same time, each with a database of its own; there is nearly no load. After the whole worker has died,
another is started a second later.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from harness.bench import ENVQ, Bench
from harness.processes import FOLDER, Failed, Subject, Workers, producer_argv, subject_env
from harness.redis_server import RedisServer
from harness.results import Outcome, at_most
from peers.common import END, START, Record, read_records

PEERS: Final = (
    "rq:fork",
    "celery:prefork",
    "dramatiq:t8",
    "huey:thread",
    "arq:default",
    "saq:default",
    "streaq:default",
)
CHILD, TREE = "the process that runs the job", "the whole worker"
_JOB_S = 20.0
_SETTLE_S = 6.0
_RUNNING_S = 2.0
_START_WITHIN_S = 40.0
_AGAIN_WITHIN_S, _AGAIN_WITHIN_S_QUICK = 75.0, 35.0
T = TypeVar("T")


@dataclass
class Recovery:
    """What became of one job."""

    outcome: str = ""
    again_s: float | None = None
    finished: bool = False
    state_running: str = ""
    state_end: str = ""


@dataclass
class _Case:
    bench: Bench
    subject: Subject
    killed: str
    records: Path
    log: Path
    within_s: float
    recovery: Recovery = field(default_factory=Recovery)

    def run(self) -> Recovery:
        """Worker, job, kill, and what comes after."""
        with ExitStack() as stack:
            first = stack.enter_context(Workers(self.subject, self.records, self.log))
            time.sleep(_SETTLE_S)
            producer = stack.enter_context(_Watcher(self.subject, self.records))
            record = _wait_for(lambda: _nth(self.records, START), _START_WITHIN_S)
            if record is None:
                raise Failed(f"{self.subject.name}: the job never started")
            time.sleep(_RUNNING_S)
            self.recovery.state_running = producer.state()
            if self.killed == CHILD and record.pid in [command.pid for command in first.commands]:
                self.recovery.outcome = "one process is all there is"
                return self.recovery
            killed_at = time.monotonic()
            if self.killed == CHILD:
                os.kill(record.pid, signal.SIGKILL)
            else:
                first.kill()
                time.sleep(1)
                stack.enter_context(Workers(self.subject, self.records, self.log))
            self._follow(killed_at)
            self.recovery.state_end = producer.state()
        return self.recovery

    def _follow(self, killed_at: float) -> None:
        again = _wait_for(lambda: _nth(self.records, START, 1), self.within_s)
        if again is None:
            self.recovery.outcome = f"not within {self.within_s:g} s"
            return
        self.recovery.outcome = "ran again"
        self.recovery.again_s = again.at_ns / 1e9 - killed_at
        self.recovery.finished = _wait_for(lambda: _nth(self.records, END), _JOB_S + 5) is not None


class _Watcher:
    """A producer that has enqueued one long job, and tells what the peer knows of it."""

    def __init__(self, subject: Subject, records: Path) -> None:
        self._process = subprocess.Popen(
            producer_argv(subject, "watch", {"seconds": _JOB_S}),
            cwd=FOLDER,
            env=subject_env(subject, records, {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> _Watcher:
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def state(self) -> str:
        """One line of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
            return str(json.loads(self._process.stdout.readline())["state"])
        except (OSError, ValueError) as error:
            return f"the producer failed: {error!r}"

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def _nth(records: Path, kind: int, number: int = 0) -> Record | None:
    found = [each for each in read_records(records) if each.kind == kind]
    return found[number] if len(found) > number else None


def _wait_for(find: Callable[[], T | None], timeout_s: float) -> T | None:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if (found := find()) is not None:
            return found
        time.sleep(0.1)
    return None


def measure(bench: Bench) -> Outcome:
    names = [ENVQ] if bench.quick else [ENVQ, *PEERS]
    within_s = _AGAIN_WITHIN_S_QUICK if bench.quick else _AGAIN_WITHIN_S
    found: dict[str, dict[str, Any]] = {CHILD: {}, TREE: {}}
    with RedisServer() as server, ThreadPoolExecutor(2 * len(names)) as threads:
        cases: list[_Case] = []
        for number, (killed, name) in enumerate((killed, name) for killed in found for name in names):
            subject = Subject.of(name, server.url(number))
            log = bench.log_of(f"{name}-kill-{number}")
            cases.append(_Case(bench, subject, killed, bench.records(), log, within_s))
        for case, ended in zip(cases, threads.map(_run, cases), strict=True):
            found[case.killed][case.subject.name] = ended
            bench.say(f"{case.subject.name}, {case.killed}: {ended}")
    return Outcome(
        goals=[
            at_most(f"after the death of {CHILD}", _again(found[CHILD]), 5, "s"),
            at_most(f"after the death of {TREE}", _again(found[TREE]), 30, "s"),
        ],
        ratios={
            name: ratio
            for name in names[1:]
            if (ratio := _ratio(_again(found[TREE]), _again(found[TREE], name))) is not None
        },
        figures=found,
    )


def _run(case: _Case) -> dict[str, Any]:
    try:
        return vars(case.run())
    except Failed as error:
        return vars(Recovery(outcome=str(error)))


def _again(of_names: dict[str, dict[str, Any]], name: str = ENVQ) -> float | None:
    return of_names.get(name, {}).get("again_s")


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None
