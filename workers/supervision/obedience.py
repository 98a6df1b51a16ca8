"""Acts on what others tell a worker: RQ's commands for an executor, and news of the declarations."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

from redis import Redis

from envq.store import keys as rq
from envq.store.keys import Keys
from envq.store.records import Declaration
from envq.workers.slot import Phase, build_detail
from envq.workers.supervision.commands import Command, NotACommand, parse
from envq.workers.supervision.crew import Crew
from envq.workers.supervision.enforcement import Enforcement
from envq.workers.supervision.executor_process import ExecutorProcess
from envq.workers.supervision.link import Link
from envq.workers.supervision.verdict import Intent

log = logging.getLogger("envq.worker")


class Obedience:
    """Takes messages by channel; nothing in one of them can raise."""

    def __init__(self, keys: Keys, link: Link, crew: Crew, enforcement: Enforcement) -> None:
        self._keys = keys
        self._link = link
        self._crew = crew
        self._enforcement = enforcement

    def take(self, channel: str, data: bytes) -> None:
        """One message."""
        if channel == self._keys.env_channel:
            self.look_at_declarations()
            return
        executor = next((each for each in self._crew if rq.worker_commands(each.name) == channel), None)
        try:
            command = parse(data)
        except NotACommand as error:
            log.warning("ignored a message on %s: %s", channel, error)
            return
        if executor is not None:
            self._obey(executor, command)

    def look_at_declarations(self) -> None:
        """Something was declared or removed, or may have been while nobody listened."""
        for executor in self._crew:
            executor.tell(b"wake")
        if self._link.up:  # otherwise the heartbeat looks, as soon as there is one again
            self._link.exchange(self.cancel_builds)

    def cancel_builds(self, connection: Redis) -> None:
        """End builds of what was removed or declared anew: a hung one would not notice. Raises RedisError."""
        for executor in self._crew:
            view = executor.view
            if view.phase is not Phase.BUILDING:
                continue
            header = cast(bytes | None, cast(Any, connection).hget(self._keys.declarations, view.subject))
            if header is None:
                self._enforcement.cancel_build(executor, view.subject)
            elif _is_outdated(header, view.detail):
                self._enforcement.cancel_outdated_build(executor, view.subject)

    def _obey(self, executor: ExecutorProcess, command: Command) -> None:
        log.info("executor %s is told to %s %s", executor.name, command.kind, command.job_id)
        actions: dict[str, Callable[[], None]] = {
            "stop-job": lambda: self._stop_job(executor, command),
            "stop-execution": lambda: self._stop_job(executor, command),
            "shutdown": lambda: self._crew.retire(executor),
            "kill-horse": lambda: executor.kill(Intent("command", "it was told so")),
        }
        actions[command.kind]()

    def _stop_job(self, executor: ExecutorProcess, command: Command) -> None:
        view = executor.view
        other = view.execution_id and command.execution_id and view.execution_id != command.execution_id
        inside = view.phase in (Phase.BUILDING, Phase.RESETTING) and view.ran == command.job_id
        if other:
            log.warning("executor %s is not working on job %s: ignored", executor.name, command.job_id)
        else:
            self._enforcement.stop_job(executor, command.job_id, inside=inside)


def _is_outdated(header: bytes, detail: str) -> bool:
    try:
        return build_detail(Declaration.from_json(header).identity) != detail
    except ValueError:
        return False  # nobody can read it, so nobody can build it instead
