"""The web app of examples/web over HTTP: a real uvicorn, a real worker, a real server between them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess

import httpx
import pytest
from support.processes import Process
from support.servers import free_port
from support.waiting import eventually
from support.workers import WorkerProcess

WEB = Path(__file__).parents[2] / "examples" / "web"
REQUESTS_AT_ONCE = 20


@pytest.fixture
def web(start_process: Callable[..., Process], redis_url: str) -> Iterator[httpx.Client]:
    """The app behind uvicorn, without a worker."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "app:app", "--app-dir", str(WEB), "--port", str(port)]
    process = start_process(command, env={"ENVQ_URL": redis_url})
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20.0) as client:
        eventually(lambda: answers(client) or not process.running, timeout=20.0)
        assert process.running, process.output
        yield client


@pytest.fixture
def app(web: httpx.Client, worker: Callable[..., WorkerProcess]) -> httpx.Client:
    """The app, and one executor that can import what it enqueues."""
    worker("-P", str(WEB))
    return web


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/health").is_success
    except httpx.TransportError:
        return False


def test_a_request_waits_for_the_result_of_its_job(app: httpx.Client) -> None:
    answer = app.post("/predict", json={"text": "works great, I love it"})
    assert answer.status_code == 200
    assert answer.json()["label"] == "praise"
    assert app.post("/predict", json={"text": "terrible and slow"}).json()["label"] == "complaint"


def test_no_request_finds_the_text_of_another_in_the_model(app: httpx.Client) -> None:
    answers = [app.post("/predict", json={"text": f"text {number}"}).json() for number in range(5)]
    assert [answer["texts_in_the_model"] for answer in answers] == [1] * 5


def test_requests_that_wait_do_not_hold_up_each_other(app: httpx.Client) -> None:
    def ask(number: int) -> int:
        return app.post("/predict", json={"text": f"text {number}"}).status_code

    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as threads:
        assert list(threads.map(ask, range(REQUESTS_AT_ONCE))) == [200] * REQUESTS_AT_ONCE


def test_a_job_that_was_submitted_can_be_fetched_later(app: httpx.Client) -> None:
    submitted = app.post("/jobs", json={"text": "a lovely answer"})
    assert submitted.status_code == 202
    path = f"/jobs/{submitted.json()['job']}"

    def finished() -> dict[str, object]:
        state = app.get(path).json()
        assert state["status"] == "finished"
        return state

    assert eventually(finished)["result"] == {"label": "praise", "texts_in_the_model": 1}


def test_a_request_that_waited_in_vain_is_told_where_its_result_will_be(
    web: httpx.Client, worker: Callable[..., WorkerProcess]
) -> None:
    answer = web.post("/predict", params={"timeout": 0.1}, json={"text": "a lovely answer"})
    assert (answer.status_code, answer.json()["detail"]) == (504, "GetTimeout")

    worker("-P", str(WEB))
    eventually(lambda: web.get(f"/jobs/{answer.json()['job']}").json()["status"] == "finished")


def test_mistakes_of_the_caller_are_told_as_such(app: httpx.Client) -> None:
    assert app.get("/jobs/never-existed").status_code == 404
    assert app.post("/predict", json={"text": ""}).status_code == 422


def test_importing_the_app_talks_to_no_server(run_script: Callable[..., CompletedProcess[str]]) -> None:
    done = run_script(
        f"""
        import sys
        sys.path.insert(0, {str(WEB)!r})
        import app
        print(app.app.title)
        """,
        env={"ENVQ_URL": "redis://127.0.0.1:1/0"},
    )
    assert done.stdout.strip() == "envq example"
