"""taskiq."""

import asyncio

from peers import common
from peers.common import CONFIG, RESULT_TTL_S, URL

if CONFIG:
    from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend, RedisStreamBroker

    backend = RedisAsyncResultBackend(URL, result_ex_time=RESULT_TTL_S)
    if CONFIG.startswith("list"):
        broker = ListQueueBroker(URL).with_result_backend(backend)
    else:
        # consumer_id "0": the group must see jobs that were enqueued before the first worker came
        broker = RedisStreamBroker(URL, consumer_id="0").with_result_backend(backend)
    fns = {k: broker.task(task_name=k)(getattr(common, "a" + k)) for k in ("noop", "stamp", "sleeper")}

FAST = "uvloop, --no-parse, prefetch 100, WARNING"


class Peer(common.Peer):
    name, venv, bulk, is_async = "taskiq", "taskiq", "gather", True
    configs = {
        "list": {"label": "ListQueueBroker, stock -w1", "role": "default", "n": 5000},
        "list-fast": {"label": f"ListQueueBroker, {FAST}", "role": "", "n": 5000, "venv": "taskiq-uvloop"},
        "stream": {"label": "RedisStreamBroker, stock -w1", "role": "default", "n": 5000},
        "stream-fast": {"label": f"RedisStreamBroker, {FAST}", "role": "fast", "n": 5000, "venv": "taskiq-uvloop"},
    }

    async def open(self):
        await broker.startup()
        self.poll = 0.005 if self.key.endswith("fast") else 0.2

    async def close(self):
        await broker.shutdown()

    async def enqueue(self, fn, *args):
        return await fns[fn].kiq(*args)

    async def enqueue_many(self, fn, arguments):
        await asyncio.gather(*(fns[fn].kiq(*a) for a in arguments))

    async def wait(self, handle, timeout):
        return await handle.wait_result(check_interval=self.poll, timeout=timeout)

    async def state(self, handle):
        return f"result ready={await handle.is_ready()}"

    def worker_commands(self, bin_folder, n):
        argv = [f"{bin_folder}/taskiq", "worker", "peers.peer_taskiq:broker", "-w", str(n)]
        if self.key.endswith("fast"):
            argv += ["--no-parse", "--max-prefetch", "100", "--log-level", "WARNING"]
        return [(argv, {})]
