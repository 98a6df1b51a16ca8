"""SAQ."""

import asyncio
import contextlib
import time

from peers import common
from peers.common import CONFIG, URL

if CONFIG:
    from saq import Queue

    queue = Queue.from_url(URL)

    async def noop(ctx, *, i):
        return await common.anoop(i)

    async def stamp(ctx, *, i):
        return await common.astamp(i)

    async def sleeper(ctx, *, i, seconds):
        return await common.asleeper(i, seconds)

    settings = {
        "queue": queue,
        "functions": [noop, stamp, sleeper],
        "concurrency": 100 if CONFIG == "fast" else 10,
    }
    if CONFIG == "fast":
        with contextlib.suppress(ImportError):
            import uvloop

            asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


class Peer(common.Peer):
    name, venv, bulk, is_async, keeps_record = "SAQ", "saq", "gather", True, True
    configs = {
        "default": {"label": "stock: concurrency 10", "role": "default", "n": 5000, "lat_n": 40},
        "fast": {"label": "concurrency 100, uvloop", "role": "fast", "n": 5000},
    }

    async def open(self):
        await queue.connect()
        self.poll = 0.005 if self.key == "fast" else 0.5

    async def close(self):
        await queue.disconnect()

    async def enqueue(self, fn, *args):
        if fn == "sleeper":  # the stock timeout is 10 s: a 30 s job needs its own
            return await queue.enqueue(fn, i=args[0], seconds=args[1], timeout=args[1] + 10)
        return await queue.enqueue(fn, i=args[0])

    async def enqueue_many(self, fn, arguments):
        await asyncio.gather(*(queue.enqueue(fn, i=a[0]) for a in arguments))

    async def wait(self, handle, timeout):
        # The way Queue.apply() waits. Job.refresh(until_complete=...) is not used: it subscribes after it has
        # looked, so that a job which ends in between is never noticed.
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            await handle.refresh()
            if handle.completed:
                return handle.result
            await asyncio.sleep(self.poll)
        raise TimeoutError

    async def state(self, handle):
        await handle.refresh()
        return f"Job.status={handle.status.value}, attempts={handle.attempts}"

    def worker_commands(self, bin_folder, n):
        argv = [f"{bin_folder}/saq", "peers.peer_saq.settings"]
        return [(argv + (["--workers", str(n)] if n > 1 else []), {})]
