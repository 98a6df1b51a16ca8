"""Huey."""

from peers import common
from peers.common import CONFIG, RESULT_TTL_S, URL

if CONFIG:
    from huey import RedisExpireHuey, RedisHuey

    if CONFIG == "thread-ttl":
        huey = RedisExpireHuey("bench", url=URL, expire_time=RESULT_TTL_S, notify_result=True)
    else:
        huey = RedisHuey("bench", url=URL)
    fns = {k: huey.task(name=k)(getattr(common, k)) for k in ("noop", "stamp", "sleeper")}


class Peer(common.Peer):
    name, venv = "Huey", "huey"
    configs = {
        "thread": {"label": "1 thread, stock", "role": "default", "n": 5000},
        "thread-fast": {"label": "1 thread, -q -n", "role": "fast", "n": 5000},
        "thread-ttl": {"label": "1 thread, -q -n, RedisExpireHuey, notify_result", "role": "latency", "n": 5000},
    }

    def enqueue(self, fn, *args):
        return fns[fn](*args)

    def wait(self, handle, timeout):
        return handle.get(blocking=True, timeout=timeout)

    def state(self, handle):
        return f"queue length={huey.storage.queue_size()}, result={huey.storage.has_data_for_key(handle.id)}"

    def worker_commands(self, bin_folder, n):
        argv = [f"{bin_folder}/huey_consumer", "peers.peer_huey.huey"]
        if self.key != "thread":
            argv += ["-q", "-n"]
        return [(argv, {}) for _ in range(n)]
