"""The producer of one peer, run with the peer's own interpreter; prints one line of JSON.

python -m peers.producer MODULE OPERATION JSON_OPTIONS
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import random
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from peers.common import END, START, Peer, read_records

WARM_UP = 20
BATCH = {"native": 500, "gather": 50}
WAIT_S = 20.0


async def settled(result: Any) -> Any:
    """The result of a method of the peer, whether that is a coroutine function or not."""
    return await result if inspect.isawaitable(result) else result


async def pause(peer: Peer, seconds: float) -> None:
    if peer.is_async:
        await asyncio.sleep(seconds)
    else:
        time.sleep(seconds)


async def enqueue(peer: Peer, n: int) -> dict[str, Any]:
    """One by one; ``jobs`` counts those of warming up as well."""
    for _ in range(WARM_UP):
        await settled(peer.enqueue("noop", -1))
    begin = time.perf_counter()
    for i in range(n):
        await settled(peer.enqueue("noop", i))
    return {"rate": n / (time.perf_counter() - begin), "jobs": n + WARM_UP}


async def bulk(peer: Peer, n: int, fn: str = "noop", seconds: float = 0.0, payload: int = 0) -> dict[str, Any]:
    """In the peer's bulk call, one by one where it has none."""
    further = ((seconds,) if fn == "sleeper" else ()) + ((os.urandom(payload),) if payload else ())
    batch = BATCH[peer.bulk] if peer.bulk else 1
    begin = time.perf_counter()
    for start in range(0, n, batch):
        if peer.bulk:
            await settled(peer.enqueue_many(fn, [(i, *further) for i in range(start, min(n, start + batch))]))
        else:
            await settled(peer.enqueue(fn, start, *further))
    return {"rate": n / (time.perf_counter() - begin), "jobs": n}


async def latency(peer: Peer, n: int) -> dict[str, Any]:
    """One job at a time on an idle worker, with pauses; µs to its first line and to its result here."""
    samples: list[tuple[int, int, int]] = []
    pauses = random.Random(7)
    for i in range(-10, n):
        await pause(peer, pauses.uniform(0.005, 0.015))
        begin = time.monotonic_ns()
        await settled(peer.wait(await settled(peer.enqueue("stamp", i)), WAIT_S))
        if i >= 0:
            samples.append((i, begin, time.monotonic_ns()))
    marks = {(r.kind, r.sequence): r.at_ns for r in read_records(Path(os.environ["BENCH_RECORDS"]))}
    return {
        "to_start_us": [(marks[START, i] - begin) / 1e3 for i, begin, _ in samples],
        "to_end_us": [(marks[END, i] - begin) / 1e3 for i, begin, _ in samples],
        "to_result_us": [(end - begin) / 1e3 for _, begin, end in samples],
    }


async def one(peer: Peer) -> dict[str, Any]:
    await settled(peer.enqueue("stamp", -1))
    return {"jobs": 1}


async def watch(peer: Peer, seconds: float) -> dict[str, Any]:
    """One long job; then for each line on stdin a line that says what the peer knows about it."""
    handle = await settled(peer.enqueue("sleeper", 1, seconds))
    print("{}", flush=True)
    while await asyncio.to_thread(sys.stdin.readline) if peer.is_async else sys.stdin.readline():
        try:
            state = await settled(peer.state(handle))
        except Exception as error:  # noqa: BLE001 - each peer has errors of its own; they are an answer as well
            state = repr(error)
        print(json.dumps({"state": state}), flush=True)
    return {}


OPERATIONS: dict[str, Callable[..., Coroutine[Any, Any, dict[str, Any]]]] = {
    each.__name__: each for each in (enqueue, bulk, latency, one, watch)
}


async def produce(peer: Peer, operation: str, options: dict[str, Any]) -> dict[str, Any]:
    await settled(peer.open())
    try:
        return await OPERATIONS[operation](peer, **options)
    finally:
        await settled(peer.close())


def without_a_loop(coroutine: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """Run a coroutine that never waits: clients that are not asynchronous are measured without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("a peer that is not asynchronous waited for an event loop")


def main() -> None:
    module, operation, options = sys.argv[1:4]
    peer: Peer = importlib.import_module(module).Peer(os.environ["BENCH_CONFIG"], os.environ["BENCH_URL"])
    coroutine = produce(peer, operation, json.loads(options))
    print(json.dumps(asyncio.run(coroutine) if peer.is_async else without_a_loop(coroutine)), flush=True)


if __name__ == "__main__":
    main()
