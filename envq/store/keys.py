"""Every Redis key and channel, with its type, writers, readers and lifetime.

RQ's keys carry RQ's own prefix (``RQ_KEY_PREFIX``); they are listed here as well, because scripts need
them by name. envq's keys start with ``envq:<namespace>:``.
"""

from __future__ import annotations

from dataclasses import dataclass

from rq.defaults import RQ_KEY_PREFIX

from envq.settings import DEFAULT_NAMESPACE

SUSPENDED = f"{RQ_KEY_PREFIX}:suspended"  # string; `rq suspend` writes, every claim reads
QUEUES = f"{RQ_KEY_PREFIX}:queues"  # set of queue keys; every producer writes
WORKERS = f"{RQ_KEY_PREFIX}:workers"  # set of worker keys; executors write at birth and death
JOB_PREFIX = f"{RQ_KEY_PREFIX}:job:"
QUEUE_PREFIX = f"{RQ_KEY_PREFIX}:queue:"
WIP_PREFIX = f"{RQ_KEY_PREFIX}:wip:"
EXECUTIONS_PREFIX = f"{RQ_KEY_PREFIX}:executions:"
EXECUTION_PREFIX = f"{RQ_KEY_PREFIX}:execution:"
RESULTS_PREFIX = f"{RQ_KEY_PREFIX}:results:"
FINISHED_PREFIX = f"{RQ_KEY_PREFIX}:finished:"
DEPENDENCIES_PREFIX = f"{RQ_KEY_PREFIX}:job::"  # and then the id and ":dependencies"


def job(job_id: str) -> str:
    """Hash, RQ's job record; producers and executors write; lives as RQ's TTLs say."""
    return JOB_PREFIX + job_id


def queue(name: str) -> str:
    """List of job ids; producers push, claims move from it."""
    return QUEUE_PREFIX + name


def wip(queue_name: str) -> str:
    """Sorted set ``job:execution``; our entries have score +inf, so that stock maintenance lets them be."""
    return WIP_PREFIX + queue_name


def deferred(queue_name: str) -> str:
    """Sorted set of jobs that wait for others; producers write, whoever ends the last of those removes."""
    return f"{RQ_KEY_PREFIX}:deferred:{queue_name}"


def ready(queue_name: str) -> str:
    """Sorted set of jobs that need not wait any more, until whoever ended the last of the others enqueues them."""
    return f"{RQ_KEY_PREFIX}:ready:{queue_name}"


def executions(job_id: str) -> str:
    """Sorted set of a job's running executions; written at start, emptied at the end."""
    return EXECUTIONS_PREFIX + job_id


def execution(job_id: str, execution_id: str) -> str:
    """Hash, RQ's record of one running execution; kept alive by the supervisor's heartbeat."""
    return f"{EXECUTION_PREFIX}{job_id}:{execution_id}"


def results(job_id: str) -> str:
    """Stream of at most 10 results; whoever ends an execution appends; lives for the result or failure TTL."""
    return RESULTS_PREFIX + job_id


def worker(name: str) -> str:
    """Hash, RQ's record of one executor; lives 8 minutes past the last heartbeat."""
    return f"{RQ_KEY_PREFIX}:worker:{name}"


def workers_of(queue_name: str) -> str:
    """Set of the keys of the workers that listen on a queue."""
    return f"{WORKERS}:{queue_name}"


def worker_executions(name: str) -> str:
    """Set of ``job:execution`` an executor runs."""
    return f"{RQ_KEY_PREFIX}:worker:{name}:executions"


def worker_commands(name: str) -> str:
    """Channel on which stock tools send stop, shutdown and kill commands to one executor."""
    return f"{RQ_KEY_PREFIX}:pubsub:{name}"


@dataclass(frozen=True)
class Keys:
    """envq's own keys in one namespace of one database."""

    namespace: str = DEFAULT_NAMESPACE
    database: int = 0

    def _key(self, *parts: str) -> str:
        return ":".join(("envq", self.namespace, *parts))

    def queue_name(self, name: str) -> str:
        """The name RQ knows a queue by: the namespace is a prefix, except for the default one."""
        return name if self.namespace == DEFAULT_NAMESPACE else f"{self.namespace}:{name}"

    @property
    def declarations(self) -> str:
        """Hash name → Declaration as JSON; drivers and ``envq env`` write, executors read; no TTL."""
        return self._key("declarations")

    @property
    def store_id(self) -> str:
        """String, random: a signed declaration belongs to one store; drivers with a key write it; no TTL."""
        return self._key("store-id")

    @property
    def generation(self) -> str:
        """String ``counter:token:life``; changes with every declaration; see generation.py; no TTL."""
        return self._key("generation")

    def code(self, digest: str) -> str:
        """String, a packed code blob; drivers write; no TTL while a variable is declared with it."""
        return self._key("code", digest)

    @property
    def executors(self) -> str:
        """Sorted set executor → server time in ms at which, without another sign of life, it is dead; no TTL."""
        return self._key("executors")

    def executor(self, name: str) -> str:
        """Hash, what one executor is and holds; the executor writes, tools read; TTL renewed by heartbeats."""
        return self._key("executor", name)

    def claims(self, executor: str) -> str:
        """List of job ids an executor has taken: the truth about who runs what; empty lists vanish."""
        return self._key("claims", executor)

    @property
    def settle(self) -> str:
        """List of job ids that some executor must end through RQ's failure path; supervisors push."""
        return self._key("settle")

    def tries(self, name: str, version: int) -> str:
        """Hash ``host/executor`` → time of a build that began and has not ended: what is left of a dead one."""
        return self._key("tries", name, str(version))

    @property
    def events(self) -> str:
        """Stream of events as JSON, capped; executors and drivers append, monitors replay."""
        return self._key("events")

    @property
    def events_channel(self) -> str:
        """Channel of the same events, live. Channels cross databases, so they carry the number."""
        return self._key(str(self.database), "events")

    @property
    def env_channel(self) -> str:
        """Channel that rings when a declaration changed: only a doorbell, the generation is the truth."""
        return self._key(str(self.database), "env")
