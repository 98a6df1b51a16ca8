"""Stock tools read what envq writes, in processes where neither envq nor cloudpickle can be imported."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.deployment import Deployment
from support.processes import clean_environment
from support.waiting import eventually

import envq
from envq.driver.client import Client

BLOCKER = """
    import sys
    from importlib.abc import MetaPathFinder

    class Blocker(MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in ("envq", "cloudpickle", "workers", "cli"):
                raise ModuleNotFoundError(f"{name} is not installed here", name=name)

    sys.meta_path.insert(0, Blocker())
"""


@pytest.fixture
def elsewhere(tmp_path: Path, deployment: Deployment) -> Callable[..., str]:
    """Run a program where envq is not installed; what it prints."""
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(BLOCKER))

    def run(program: str, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), *arguments],
            cwd=tmp_path,
            env=clean_environment({"PYTHONPATH": str(tmp_path), "RQ_REDIS_URL": deployment.url}),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def ended(driver: Client) -> dict[str, envq.Job[Any]]:
    """Jobs of every kind that have ended."""

    class Vector:
        def __init__(self, x: int) -> None:
            self.x = x

    def add(x: int, y: int) -> int:
        return x + y

    def length(vector: Vector) -> int:
        return vector.x

    def fails() -> None:
        raise ValueError("on purpose")

    queue = envq.Queue()
    jobs = {
        "lambda": queue.enqueue(lambda x: {"double": 2 * x}, 21, meta={"who": "me"}),
        "nested": envq.task(timeout=2.5)(add).enqueue(1, y=2),
        "own class": queue.enqueue(length, Vector(7)),
        "failed": queue.enqueue(fails),
        "dotted": queue.enqueue("operator.add", 1, 2),
    }
    envq.get(list(jobs.values()), timeout=20, return_exceptions=True)
    return jobs


READ = """
    import json, sys
    import redis, rq.job
    connection = redis.Redis.from_url(sys.argv[1])
    seen = {}
    for name, job_id in json.loads(sys.argv[2]).items():
        job = rq.job.Job.fetch(job_id, connection)
        result = job.latest_result()
        seen[name] = {
            "status": job.get_status(), "value": job.return_value(), "func": job.func_name, "args": repr(job.args),
            "description": job.description, "meta": job.meta, "timeout": job.timeout, "origin": job.origin,
            "worker": job.worker_name, "ended": job.ended_at is not None, "exc": result.exc_string or "",
        }
    print(json.dumps(seen))
"""


def test_the_blocker_blocks(elsewhere: Callable[..., str]) -> None:
    program = """
        for name in ("envq", "cloudpickle"):
            try:
                __import__(name)
            except ModuleNotFoundError:
                print("blocked")
    """
    assert elsewhere(program) == "blocked\nblocked\n"


def test_job_fetch_reads_every_kind_of_job(
    elsewhere: Callable[..., str], deployment: Deployment, ended: dict[str, envq.Job[Any]]
) -> None:
    seen = json.loads(elsewhere(READ, deployment.url, json.dumps({name: job.id for name, job in ended.items()})))
    values = {name: each["value"] for name, each in seen.items()}
    assert values == {"lambda": {"double": 42}, "nested": 3, "own class": 7, "failed": None, "dotted": 3}
    assert {name: each["status"] for name, each in seen.items() if each["status"] != "finished"} == {"failed": "failed"}
    assert seen["lambda"]["meta"] == {"who": "me"}
    assert seen["nested"]["timeout"] == 3
    assert seen["nested"]["description"].endswith("add"), "the function, and never its arguments"
    assert seen["nested"]["func"] == "envq.remote.call"
    assert ended["nested"].code_digest in seen["nested"]["args"]
    assert "ValueError: on purpose" in seen["failed"]["exc"]
    for each in seen.values():
        assert each["origin"] == "default"
        assert each["worker"] in deployment.worker.executors()
        assert each["ended"]


def test_rq_info_shows_queues_workers_and_what_runs(
    elsewhere: Callable[..., str], deployment: Deployment, driver: Client
) -> None:
    def waits() -> None:
        from rq import get_current_job

        job: Any = get_current_job()
        job.connection.blpop(f"gate:{job.id}", timeout=30)

    running, queued = envq.Queue().enqueue(waits), envq.Queue().enqueue(lambda: 1)
    eventually(lambda: running.get_status() == "started")
    text = elsewhere("import sys; from rq.cli import main; sys.argv = ['rq', 'info']; main()")
    [name] = deployment.worker.executors()
    assert name in text
    assert "1 workers, 1 queues" in text
    assert "busy" in text
    line = next(line for line in text.splitlines() if line.startswith("default"))
    assert " 1, " in line, "one job waits"
    assert ", 1 executing" in line
    deployment.redis.rpush(f"gate:{running.id}", 1)
    envq.get([running, queued], timeout=10)


def test_stock_workers_registries_and_results_list_them(
    elsewhere: Callable[..., str], deployment: Deployment, ended: dict[str, envq.Job[Any]]
) -> None:
    program = """
        import json, sys
        import redis, rq
        connection = redis.Redis.from_url(sys.argv[1])
        queue = rq.Queue(connection=connection)
        [worker] = rq.Worker.all(connection=connection)
        print(json.dumps({
            "finished": queue.finished_job_registry.get_job_ids(), "failed": queue.failed_job_registry.get_job_ids(),
            "started": queue.started_job_registry.get_job_ids(), "state": worker.get_state(),
            "queues": worker.queue_names(), "good": worker.successful_job_count, "bad": worker.failed_job_count,
            "beat": worker.last_heartbeat is not None, "pid": worker.pid,
        }))
    """
    seen = json.loads(elsewhere(program, deployment.url))
    assert {job.id for name, job in ended.items() if name != "failed"} <= set(seen["finished"])
    assert ended["failed"].id in seen["failed"]
    assert seen["started"] == []
    assert (seen["state"], seen["queues"], seen["beat"]) == ("idle", ["default"], True)
    assert seen["good"] >= 4
    assert seen["bad"] >= 1
    assert seen["pid"] in deployment.worker.descendants()


def test_a_failed_job_is_requeued_by_stock_rq(
    elsewhere: Callable[..., str], deployment: Deployment, driver: Client
) -> None:
    def fails_once() -> str:
        from rq import get_current_job

        job: Any = get_current_job()
        if job.connection.incr(f"runs:{job.id}") == 1:
            raise ValueError("once")
        return "the second time"

    job = envq.Queue().enqueue(fails_once)
    with pytest.raises(envq.JobFailed):
        envq.get(job, timeout=10)
    program = """
        import sys
        import redis, rq.job
        rq.job.Job.fetch(sys.argv[2], redis.Redis.from_url(sys.argv[1])).requeue()
    """
    elsewhere(program, deployment.url, job.id)
    eventually(lambda: job.get_status() == "finished")
    assert envq.get(job.id, timeout=5) == "the second time"


def test_rq_dashboard_shows_queues_jobs_and_workers(
    elsewhere: Callable[..., str], deployment: Deployment, ended: dict[str, envq.Job[Any]]
) -> None:
    pytest.importorskip("rq_dashboard")
    program = """
        import json, sys, warnings
        warnings.simplefilter("ignore")
        import rq_dashboard
        from flask import Flask
        app = Flask("dashboard")
        app.config.from_object(rq_dashboard.default_settings)
        app.config["RQ_DASHBOARD_REDIS_URL"] = sys.argv[1]
        rq_dashboard.web.setup_rq_connection(app)
        app.register_blueprint(rq_dashboard.blueprint)
        client = app.test_client()
        def get(path):
            answer = client.get(path)
            return [answer.status_code, answer.get_data(as_text=True)]
        print(json.dumps({path: get(path) for path in json.loads(sys.argv[2])}))
    """
    ids = {name: job.id for name, job in ended.items()}
    paths = [
        "/0/data/queues.json",
        "/0/data/workers.json",
        "/0/data/jobs/default/finished/50/asc/1.json",
        "/0/data/jobs/default/failed/50/asc/1.json",
        *(f"/0/data/job/{job_id}.json" for job_id in ids.values()),
        *(f"/0/view/job/{job_id}" for job_id in ids.values()),
    ]
    pages = json.loads(elsewhere(program, deployment.url, json.dumps(paths)))
    assert {path: page[0] for path, page in pages.items() if page[0] != 200} == {}
    assert deployment.worker.executors()[0] in pages["/0/data/workers.json"][1]
    listed = pages["/0/data/jobs/default/finished/50/asc/1.json"][1]
    for name in ("lambda", "nested", "own class", "dotted"):
        assert ids[name] in listed
        assert '"finished"' in pages[f"/0/data/job/{ids[name]}.json"][1]
    assert ids["failed"] in pages["/0/data/jobs/default/failed/50/asc/1.json"][1]
    assert "on purpose" in pages[f"/0/data/job/{ids['failed']}.json"][1]
    assert "42" in pages[f"/0/data/job/{ids['lambda']}.json"][1]
