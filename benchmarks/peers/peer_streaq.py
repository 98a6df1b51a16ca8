"""streaQ."""

from peers import common
from peers.common import CONFIG, RESULT_TTL_S, URL

if CONFIG:
    from streaq import Worker

    if CONFIG == "fast":
        worker = Worker(redis_url=URL, concurrency=128, anyio_kwargs={"use_uvloop": True})
    else:
        worker = Worker(redis_url=URL)
    options = {"ttl": RESULT_TTL_S, "silent": CONFIG == "fast"}
    fns = {k: worker.task(name=k, **options)(getattr(common, "a" + k)) for k in ("noop", "stamp", "sleeper")}


class Peer(common.Peer):
    name, venv, bulk, is_async, keeps_record = "streaQ", "streaq", "native", True, True
    configs = {
        "default": {"label": "stock: concurrency 16", "role": "default", "n": 5000},
        "fast": {"label": "concurrency 128, uvloop, silent", "role": "fast", "n": 5000},
    }

    async def open(self):
        await worker.__aenter__()

    async def close(self):
        await worker.__aexit__(None, None, None)

    async def enqueue(self, fn, *args):
        return await fns[fn].enqueue(*args)

    async def enqueue_many(self, fn, arguments):
        await worker.enqueue_many([fns[fn].enqueue(*a) for a in arguments])

    async def wait(self, handle, timeout):
        return (await handle.result(timeout=int(timeout))).result

    async def state(self, handle):
        return f"TaskStatus={(await handle.status()).value}"

    def worker_commands(self, bin_folder, n):
        argv = [f"{bin_folder}/streaq", "run", "peers.peer_streaq:worker"]
        return [(argv + (["-w", str(n)] if n > 1 else []), {})]
