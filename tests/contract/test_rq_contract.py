"""What we rely on in RQ beyond its documentation; a new release that changes it fails here, saying what to look at."""

from __future__ import annotations

import inspect
import math
import time
from typing import Any

import pytest
import redis
import rq
from rq import callbacks, job_lifecycle, rate_limit, registry, suspension, worker_registration
from rq.executions import Execution, ExecutionRegistry
from rq.job import Job, JobStatus
from rq.registry import FinishedJobRegistry, StartedJobRegistry
from rq.results import Result
from rq.scheduler import RQScheduler
from rq.timeouts import BaseDeathPenalty
from rq.webhook import Webhook
from rq.worker import BaseWorker

from envq.store import keys
from envq.workers.execution.kind import _READ
from envq.workers.execution.worker_job import _STORED_AGAIN

# Whoever adds one to these decides whether finish.lua must write it, or kind.py leaves jobs that have it to RQ.
STORED_AT_THE_END = {"status", "started_at", "ended_at", "last_heartbeat"}
STORED_UNCHANGED = {
    "created_at", "data", "success_callback_name", "failure_callback_name", "stopped_callback_name", "worker_name",
    "group_id", "number_of_retries", "retries_left", "retry_intervals", "enqueue_at_front_on_retry", "origin",
    "description", "enqueued_at", "repeats_left", "repeat_intervals", "rate_limit_key", "rate_limit_concurrency",
    "timeout", "success_callback_timeout", "failure_callback_timeout", "stopped_callback_timeout", "webhooks",
    "result_ttl", "failure_ttl", "dependency_id", "dependency_ids", "meta", "ttl", "allow_dependency_failures",
    "enqueue_at_front",
}  # fmt: skip
RESULT_FIELDS = {
    "type", "worker_name", "return_value", "exc_string", "execution_id", "execution_started_at", "execution_ended_at",
}  # fmt: skip
EXECUTION_FIELDS = {"id", "job_id", "created_at", "last_heartbeat", "worker_name"}

# Called, overridden or set by us: what it is, and the parameters we count on.
USED: dict[Any, dict[str, tuple[str, ...]]] = {
    BaseWorker: {
        "handle_job_success": ("job", "queue", "started_job_registry", "execution"),
        "handle_job_failure": ("job", "queue", "started_job_registry", "exc_string", "execution"),
        "handle_job_retry": ("job", "queue", "retry", "started_job_registry", "execution"),
        "cleanup_execution": ("job", "pipeline", "execution"),
        "increment_failed_job_count": ("pipeline",),
        "increment_successful_job_count": ("pipeline",),
        "increment_total_working_time": ("job_execution_time", "pipeline"),
        "_enqueue_dependents_safely": ("queue", "job"),
        "_release_slot_safely": ("job",),
        "_set_connection": ("connection",),
        "register_birth": (),
        "register_death": (),
        "serialize": (),
    },
    rq.Queue: {
        "enqueue_dependents": ("job",),
        "enqueue_ready_jobs_by_queue": ("job_ids_by_queue_name",),
        "move_dependents_to_ready": ("job", "pipeline"),
        "acquire_maintenance_lock": (),
        "release_maintenance_lock": (),
        "_enqueue_job": ("job", "pipeline", "at_front"),
    },
    Job: {
        "restore": ("raw_data",),
        "refresh": (),
        "to_dict": ("include_meta", "include_result"),
        "save": ("pipeline", "include_meta", "include_result"),
        "set_status": ("status", "pipeline"),
        "get_status": ("refresh",),
        "perform": (),
        "retry": ("queue", "pipeline"),
        "cleanup": ("ttl", "pipeline", "remove_from_queue"),
        "send_webhooks": ("status",),
        "get_result_ttl": ("default_ttl",),
        "_execute": (),
        "_deserialize_data": (),
        "_handle_success": ("result_ttl", "pipeline", "worker_name", "execution_id"),
        "_handle_failure": ("exc_string", "pipeline", "worker_name", "execution_id"),
    },
    RQScheduler: {
        "acquire_locks": ("auto_start",),
        "enqueue_scheduled_jobs": (),
        "heartbeat": (),
        "register_birth": (),
        "stop": (),
    },
    Result: {
        "create_failure": ("job", "ttl", "exc_string", "worker_name", "pipeline"),
        "save": ("ttl", "pipeline"),
        "serialize": (),
    },
    BaseDeathPenalty: {"setup_death_penalty": (), "cancel_death_penalty": ()},
    callbacks: {
        "execute_success_callback": ("job", "death_penalty_class", "result"),
        "execute_failure_callback": ("job", "death_penalty_class"),
        "execute_stopped_callback": ("job", "death_penalty_class"),
    },
    job_lifecycle: {"format_exc_info": ("exc_info",)},
    registry: {"clean_registries": ("queue",)},
    worker_registration: {"register": ("worker", "pipeline")},
    rate_limit: {"release_slot": ("job",)},
}


@pytest.fixture
def job(redis_client: redis.Redis) -> Job:
    return rq.Queue("q", connection=redis_client).enqueue("time.time", job_id="j")


@pytest.mark.parametrize(
    ("owner", "name"), [(owner, name) for owner, names in USED.items() for name in names], ids=lambda each: str(each)
)
def test_rq_still_has_it_and_takes_the_same(owner: Any, name: str) -> None:
    found = inspect.getattr_static(owner, name, None)
    assert found is not None, f"{owner.__name__}.{name} is gone from RQ: look where envq uses it"
    parameters = inspect.signature(getattr(owner, name)).parameters
    missing = [each for each in USED[owner][name] if each not in parameters]
    assert not missing, f"{owner.__name__}.{name} takes {list(parameters)}, and envq passes {missing}"


def test_keys_are_spelled_as_rq_spells_them(redis_client: redis.Redis, job: Job) -> None:
    queue = rq.Queue("q", connection=redis_client)
    worker = rq.SimpleWorker([queue], connection=redis_client, name="w", prepare_for_work=False)
    execution = Execution("e", "j", redis_client, "w")
    ours_and_rqs = {
        keys.SUSPENDED: suspension.WORKERS_SUSPENDED,
        keys.QUEUES: rq.Queue.redis_queues_keys,
        keys.WORKERS: worker_registration.REDIS_WORKER_KEYS,
        keys.job("j"): job.key,
        keys.queue("q"): queue.key,
        keys.wip("q"): StartedJobRegistry("q", redis_client).key,
        keys.FINISHED_PREFIX + "q": FinishedJobRegistry("q", redis_client).key,
        keys.executions("j"): ExecutionRegistry("j", redis_client).key,
        keys.execution("j", "e"): execution.key,
        keys.results("j"): Result.get_key("j"),
        keys.worker("w"): worker.key,
        keys.workers_of("q"): worker_registration.WORKERS_BY_QUEUE_KEY % "q",
        keys.worker_executions("w"): worker.executions_key,
        keys.worker_commands("w"): worker.pubsub_channel_name,
        keys.job("j") + ":dependents": job.dependents_key,
        keys.DEPENDENCIES_PREFIX + "j:dependencies": job.dependencies_key,
    }
    assert {ours: rqs for ours, rqs in ours_and_rqs.items() if ours != rqs} == {}
    assert execution.composite_key == "j:e"
    assert execution.worker_executions_key == worker.executions_key


def test_a_record_has_the_fields_that_the_fast_path_knows(redis_client: redis.Redis) -> None:
    full = Job.create("time.time", connection=redis_client, ttl=5, result_ttl=6, failure_ttl=7, timeout=8, origin="q")
    for name, value in vars(full).items():
        if value is None and name != "_exc_info":
            setattr(full, name, 1)
    full._result, full.meta, full._dependency_ids, full._status = None, {"a": 1}, ["b"], JobStatus.QUEUED
    for name in ("created_at", "enqueued_at", "started_at", "ended_at", "last_heartbeat"):
        setattr(full, name, full.created_at)
    full.enqueue_at_front_on_retry = True
    full.webhooks = [Webhook("http://localhost/", "finished")]
    fields = set(full.to_dict())
    known = STORED_AT_THE_END | STORED_UNCHANGED
    assert fields - known == set(), "new in RQ's record: must finish.lua write it, or kind.py leave such jobs to RQ?"
    assert known - fields == set(), "gone from RQ's record"


def test_a_changed_job_is_recognised_by_attributes_that_rq_has(job: Job) -> None:
    attributes = vars(job).keys() | {name.lstrip("_") for name in vars(job)}
    assert _STORED_AGAIN - attributes == set(), "RQ's job has no such attribute any more (worker_job.py)"
    fields = {name.decode() for name in _READ if not name.startswith(b"envq_")}
    assert fields - STORED_AT_THE_END - STORED_UNCHANGED == set(), "RQ's record has no such field any more (kind.py)"


def test_a_start_writes_four_fields(redis_client: redis.Redis, job: Job) -> None:
    before: Any = redis_client.hgetall(job.key)
    with redis_client.pipeline() as pipeline:
        job.prepare_for_execution("w", pipeline)
        pipeline.execute()
    after: Any = redis_client.hgetall(job.key)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {b"status", b"started_at", b"last_heartbeat", b"worker_name"}, "claim.lua writes others"


def test_an_execution_has_the_fields_that_a_claim_writes(redis_client: redis.Redis, job: Job) -> None:
    with redis_client.pipeline() as pipeline:
        execution = Execution.create(job, 60, pipeline, "w")
        pipeline.execute()
    stored: Any = redis_client.hgetall(execution.key)
    assert {name.decode() for name in stored} == EXECUTION_FIELDS, "claim.lua writes others"
    assert redis_client.zscore(keys.wip("q"), execution.composite_key) is not None
    assert redis_client.zscore(keys.executions("j"), execution.id) is not None
    assert redis_client.smembers(keys.worker_executions("w")) == {execution.composite_key.encode()}


def test_a_result_has_the_fields_that_the_fast_path_writes(job: Job) -> None:
    now = job.created_at
    result = Result(
        "j", Result.Type.SUCCESSFUL, job.connection, return_value=1, exc_string="x", worker_name="w", execution_id="e",
        execution_started_at=now, execution_ended_at=now,
    )  # fmt: skip
    assert set(result.serialize()) == RESULT_FIELDS, "finish.lua and envq/jobs/outcome.py know others"
    assert Result.Type.SUCCESSFUL.value == 1, "finish.lua writes 1"
    nothing = Result("j", Result.Type.SUCCESSFUL, job.connection, worker_name="w")
    assert set(nothing.serialize()) == {"type", "worker_name"}, "finish.lua leaves out what is None"


@pytest.mark.parametrize("ttl", [-1, 100])
def test_results_and_the_finished_registry_live_as_long_as_the_fast_path_has_it(
    redis_client: redis.Redis, job: Job, ttl: int
) -> None:
    job.started_at = job.ended_at = job.created_at
    with redis_client.pipeline() as pipeline:
        job._handle_success(ttl, pipeline, "w")
        job.cleanup(ttl, pipeline, remove_from_queue=False)
        pipeline.execute()
    score = redis_client.zscore(keys.FINISHED_PREFIX + "q", "j")
    assert score is not None
    assert math.isinf(score) if ttl < 0 else 0 < score - time.time() <= ttl + 1
    lives = {redis_client.ttl(keys.job("j")), redis_client.ttl(keys.results("j"))}
    assert lives == {-1} if ttl < 0 else all(ttl - 5 < life <= ttl for life in lives)


def test_the_names_of_statuses_are_those_that_scripts_compare() -> None:
    used = {"queued", "started", "finished", "failed", "stopped", "canceled", "scheduled", "deferred"}
    assert used <= {status.value for status in JobStatus}
