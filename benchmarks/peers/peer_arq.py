"""arq."""

import asyncio

from peers import common
from peers.common import CONFIG, URL

if CONFIG:
    from arq import create_pool
    from arq.connections import RedisSettings

    settings = RedisSettings.from_dsn(URL)

    async def noop(ctx, i):
        return await common.anoop(i)

    async def stamp(ctx, i):
        return await common.astamp(i)

    async def sleeper(ctx, i, seconds):
        return await common.asleeper(i, seconds)

    class WorkerSettings:
        functions = [noop, stamp, sleeper]
        redis_settings = settings
        if CONFIG == "fast":
            max_jobs = 100
            poll_delay = 0.01
            log_results = False


class Peer(common.Peer):
    name, venv, bulk, is_async, keeps_record = "arq", "arq", "gather", True, True
    configs = {
        "default": {"label": "stock: max_jobs 10, poll 0.5 s", "role": "default", "n": 1000, "lat_n": 40},
        "fast": {"label": "max_jobs 100, poll 10 ms, no result log", "role": "fast", "n": 5000},
    }

    async def open(self):
        self.pool = await create_pool(settings)
        self.poll = 0.005 if self.key == "fast" else 0.5

    async def close(self):
        await self.pool.aclose()

    async def enqueue(self, fn, *args):
        return await self.pool.enqueue_job(fn, *args)

    async def enqueue_many(self, fn, arguments):
        await asyncio.gather(*(self.pool.enqueue_job(fn, *a) for a in arguments))

    async def wait(self, handle, timeout):
        return await handle.result(timeout=timeout, poll_delay=self.poll)

    async def state(self, handle):
        return f"JobStatus={(await handle.status()).value}"

    def worker_commands(self, bin_folder, n):
        return [([f"{bin_folder}/arq", "peers.peer_arq.WorkerSettings"], {}) for _ in range(n)]
