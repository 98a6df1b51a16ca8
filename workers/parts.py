"""The parts of an executor, put together once at its start."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final, cast

from redis import OutOfMemoryError, Redis
from rq.executions import Execution

from envq import remote, settings
from envq.clock import iso, utc_now
from envq.code.fingerprint import fingerprint
from envq.driver.client import Client, swap_default
from envq.environment import bind, env
from envq.runtime import Recipe, Runtime, TimeLimit
from envq.store import events, scripts
from envq.store import keys as rq
from envq.store.code_store import WORKER_WAIT_S, CodeStore
from envq.store.connection import database_number, worker_client
from envq.store.declarations import DeclarationStore, Snapshot
from envq.store.exchange import Claimed, Exchange
from envq.store.keys import Keys
from envq.store.records import EventKind, ExecutorInfo
from envq.workers import middleware
from envq.workers.config import ExecutorConfig, WorkerConfig
from envq.workers.execution.batch import Batch
from envq.workers.execution.catch_up import CatchUp
from envq.workers.execution.claims import Claims
from envq.workers.execution.context import JobContext, Services
from envq.workers.execution.deadline import Deadlines, Work
from envq.workers.execution.event_loop import EventLoop
from envq.workers.execution.fence import FencedRedis
from envq.workers.execution.memory import Memory
from envq.workers.execution.output import JobLabel, LabelledOutput, label_output
from envq.workers.execution.reporting import Reporter, RuntimeLimits
from envq.workers.execution.rq_path import RqPath
from envq.workers.execution.scope import ExecutorScope
from envq.workers.execution.storing import Storing
from envq.workers.execution.threads import Threads
from envq.workers.execution.wire import Wire
from envq.workers.execution.worker_job import WorkerJob
from envq.workers.lease import Lease
from envq.workers.ledger import Ledger
from envq.workers.slot import Phase, Slot

CLOSE_WITHIN_S: Final = 10.0

log = logging.getLogger("envq.worker")


@dataclass
class Parts:
    """Everything the loop in executor.py works with."""

    connection: FencedRedis
    keys: Keys
    info: ExecutorInfo
    lease: Lease
    claims: Claims
    batch: Batch
    wire: Wire
    catch_up: CatchUp
    reporter: Reporter
    memory: Memory
    runtime: Runtime
    rq: RqPath
    services: Services
    run: Callable[[JobContext], Any]
    label: JobLabel
    output: LabelledOutput | None  # None: what jobs print goes out as it is

    def rq_names(self, queues: Iterable[str]) -> list[str]:
        """Queue names as RQ knows them."""
        return [self.keys.queue_name(name) for name in queues]

    def birth(self) -> None:
        """Register with RQ's tools and ours, then build what is declared."""
        self._give_sign_of_life()
        self._register()
        self.reporter.publish("building")
        snapshot, recipes, _ = self.catch_up.pending()
        self.memory.begin()
        self.adopt(snapshot, recipes)
        self._emit(EventKind.EXECUTOR_STARTED)

    def _give_sign_of_life(self) -> None:
        # Before anything else: who is not among the living is not missed, and the mark of its build counts as a death.
        now, silence_ms = utc_now(), round(self.lease.silence_s * 1000)
        sign = scripts.Beat(self.info.name, "", "", iso(now), now.timestamp(), silence_ms)
        scripts.beat(self.connection, self.keys, [sign])

    def register_again(self) -> None:
        """The records were flushed or have expired while we lived."""
        self._register()
        self.reporter.publish()

    def _register(self) -> None:
        try:
            self.rq.register_birth()
        except OutOfMemoryError:  # the next sign of life finds that it is missing; draining queues goes before
            log.warning("Redis has no memory left: %s is registered once there is room", self.info.name)

    def adopt(self, snapshot: Snapshot, recipes: dict[str, Recipe]) -> None:
        """Change over to what is declared, and say so."""
        self.reporter.state = "building"
        with self.memory.built():
            self.catch_up.adopt(snapshot, recipes)
        self.reporter.generation = snapshot.generation
        self.reporter.publish("idle")

    def load(self, claimed: Claimed) -> WorkerJob | None:
        """The job; where its record cannot be read it is failed, saying so, and None is returned."""
        try:
            job = self.rq.load(claimed)
        except Exception as error:  # noqa: BLE001 - RQ raises anything for a damaged record
            self._fail_unreadable(claimed, error)
            return None
        return job

    def context(self, claimed: Claimed) -> JobContext | None:
        """What the middleware is given; where the record cannot be read the job is failed, and None is returned."""
        try:
            return JobContext(claimed, self.services)
        except Exception as error:  # noqa: BLE001 - RQ raises anything for a damaged record
            self._fail_unreadable(claimed, error)
            return None

    def identify(self, context: JobContext) -> None:
        """Make the job known to what it calls."""
        settings.set_job_identity(context.job_id)
        self.label.begin(context.title, context.job_id)

    def end_of_job(self) -> None:
        """What the job left without a newline is its own last line."""
        if self.output is not None:
            self.output.end_of_job()
        self.label.end()

    def maintain(self) -> None:
        """RQ's maintenance; a failure callback of an abandoned job takes SIGALRM away, so take it back."""
        self.rq.maintain()
        self.services.deadlines.install()

    def forget_connections(self) -> None:
        """After an error: drop what may be half read."""
        self.claims.close()
        self.wire.close()
        cast(Any, self.connection).connection_pool.disconnect()

    def let_go(self) -> None:
        """Tear down all values, each within its limit."""
        self.runtime.close()
        limit = TimeLimit("the event loop did not close")
        work = Work(Phase.STOPPING, "the event loop")
        with contextlib.suppress(TimeLimit), self.services.deadlines.limit(CLOSE_WITHIN_S, work, limit):
            self.services.loop.close()

    def sign_off(self) -> None:
        """Leave in good order: claims, records, connections."""
        try:
            self.batch.hand_back()
            self.rq.register_death()
            self._emit(EventKind.EXECUTOR_STOPPED)
        except Exception as error:  # noqa: BLE001 - Redis may be away; the reaper cleans up after us
            log.debug("could not sign off: %s", error)
        self.reporter.gone()
        self.forget_connections()

    def _emit(self, kind: EventKind) -> None:
        events.emit(self.connection, self.keys, events.event(kind, worker=self.info.name))

    def _fail_unreadable(self, claimed: Claimed, cause: Exception) -> None:
        job = WorkerJob.named(claimed.job_id, self.connection)
        job.origin = claimed.fields.get(b"origin", b"").decode(errors="replace")
        job.description = claimed.fields.get(b"description", b"").decode(errors="replace")
        self.rq.note(Execution(claimed.execution_id, claimed.job_id, self.connection, self.info.name))
        self.services.storing.store(job, lambda: self.rq.give_up(job, cause))
        # The claim took the name of the queue as it stands there, be it text or not.
        raw = rq.WIP_PREFIX.encode() + claimed.fields.get(b"origin", b"")
        cast(Any, self.connection).zrem(raw, f"{claimed.job_id}:{claimed.execution_id}")


def assemble(config: ExecutorConfig, slot: Slot, ledger: Ledger, deadlines: Deadlines) -> Parts:
    """Make all parts; no I/O yet. Raises ConfigurationError for middleware that cannot be imported."""
    worker = config.worker
    connection = FencedRedis.over(worker_client(worker.settings.url))
    keys = Keys(worker.settings.namespace, database_number(connection))
    info = _info(config)
    loop, threads = EventLoop(), Threads()
    memory = Memory()
    reporter = Reporter(connection, keys, info, memory)
    code = CodeStore(connection, keys, wait_s=WORKER_WAIT_S)
    declared = DeclarationStore(connection, keys, wait_s=WORKER_WAIT_S)
    catch_up = CatchUp(declared, lambda: runtime, worker.queues, isolate=worker.isolate)
    runtime = Runtime(
        listener=reporter,
        limits=RuntimeLimits(deadlines, reporter, threads, memory),
        run_coroutine=loop.run_for_variable,
        cache=vars(env),
        fingerprint=fingerprint if worker.check_resets else None,
        known_names=lambda: catch_up.declared,
    )
    reporter.states = runtime.states
    bind(ExecutorScope(runtime, lambda: catch_up.declared, slot.note_read, threads))
    settings.set_worker_identity(config.name)
    client = _work_for_jobs(worker, code)
    deadlines.after_strike = lambda: _drop_connections(connection, client.connection)
    rq_names = [keys.queue_name(name) for name in worker.queues]
    rq_path = RqPath(config.name, rq_names, connection, keys, deadlines)
    storing = Storing(connection, keys, config.name, rq_path)
    label = JobLabel(config.number)
    claims, wire = Claims(connection, keys, config.name), Wire(connection)
    exchange = Exchange(keys, config.name, silence_s=worker.lease.silence_s)
    batch = Batch(wire, exchange, ledger, claims, worker.lease.trust_s)
    services = Services(
        config.name, runtime, rq_path, storing, batch, deadlines, loop, threads, slot, worker.through_rq
    )
    users = middleware.of_user(worker.middleware)
    layers = middleware.all_of(users, isolate=worker.isolate, grace_s=worker.kill_grace_s)
    return Parts(
        connection=connection,
        keys=keys,
        info=info,
        lease=worker.lease,
        claims=claims,
        batch=batch,
        wire=wire,
        catch_up=catch_up,
        reporter=reporter,
        memory=memory,
        runtime=runtime,
        rq=rq_path,
        services=services,
        run=middleware.compose(layers, lambda context: context.job.perform()),
        label=label,
        output=label_output(label.__str__) if worker.label_output else None,
    )


def _work_for_jobs(worker: WorkerConfig, code: CodeStore) -> Client:
    """What a job itself asks of envq - its code, jobs it enqueues - goes to this worker's server and namespace."""
    remote.bind_code_source(lambda digest: code.get(digest, "the function"))
    client = Client(worker.settings.url, worker.settings.namespace)
    swap_default(client)
    return client


def _drop_connections(*clients: Redis) -> None:
    """
    After an error that was raised anywhere in a job: between a command and its reply, perhaps.

    The next command on such a connection would be given the reply to the one before.
    """
    for client in clients:
        pool = cast(Any, client).connection_pool
        pool.disconnect()
        pool.reset()  # forgets those that were never given back


def _info(config: ExecutorConfig) -> ExecutorInfo:
    return ExecutorInfo(
        name=config.name,
        worker=f"{config.worker.label}.{config.supervisor_pid}",
        host=platform.node(),
        pid=os.getpid(),
        supervisor_pid=config.supervisor_pid,
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        version=version("envq"),
        queues=list(config.worker.queues),
        started_at=iso(utc_now()),
    )
