"""A web app that leaves its slow work to envq: ask and wait for the answer, or ask and come back for it.

Start a worker that can import sentiment.py, then the app:

    envq worker -P examples/web
    uvicorn app:app --app-dir examples/web
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from pydantic import BaseModel, StringConstraints
from rq.exceptions import NoSuchJobError
from sentiment import classify

import envq

Seconds = Annotated[float, Query(gt=0, le=60)]


class Text(BaseModel):
    """The body of both requests."""

    text: Annotated[str, StringConstraints(min_length=1, max_length=10_000)]


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    """Connect when the app starts, not when it is imported; this also declares the model to the workers."""
    await run_in_threadpool(envq.connect)
    yield


app = FastAPI(title="envq example", lifespan=lifespan)


# The functions below that wait for Redis are plain `def`: FastAPI runs those in threads, so a request that waits
# holds up no other.


@app.post("/predict")
def predict(body: Text, timeout: Seconds = 15.0) -> dict[str, Any]:
    """Enqueue, wait, answer."""
    job = classify.enqueue(body.text)
    return {"job": job.id, **envq.get(job, timeout=timeout)}


@app.post("/jobs", status_code=202)
def submit(body: Text) -> dict[str, str]:
    """Enqueue and answer at once; the result is at /jobs/{id} for ten minutes."""
    return {"job": classify.enqueue(body.text).id}


@app.get("/jobs/{job_id}")
def job_status(job_id: str) -> dict[str, Any]:
    """Where a job is, and its result once there is one."""
    try:
        job = envq.Job.fetch(job_id)
    except NoSuchJobError:
        raise HTTPException(404, "no such job, or its result has expired") from None
    return {"job": job.id, "status": job.get_status(), "result": job.return_value()}


@app.get("/health")
async def health() -> dict[str, str]:
    """The app itself is up; says nothing about Redis or workers."""
    return {"status": "ok"}


@app.exception_handler(envq.JobError)
async def no_result(_request: Request, error: envq.JobError) -> JSONResponse:
    """A job that failed is our fault (500); one that is not done in time may still be fetched (504)."""
    late = isinstance(error, envq.GetTimeout)
    return JSONResponse({"job": error.job_id, "detail": type(error).__name__}, status_code=504 if late else 500)
