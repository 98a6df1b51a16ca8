"""RQ."""

from peers import common
from peers.common import CONFIG, URL

if CONFIG:
    import redis
    import rq

    queue = rq.Queue("default", connection=redis.Redis.from_url(URL))


class Peer(common.Peer):
    name, venv, bulk, keeps_record = "RQ", "rq", "native", True
    configs = {
        "fork": {"label": "Worker (fork), INFO log", "role": "default", "n": 300},
        "simple": {"label": "SimpleWorker, -q", "role": "fast", "n": 2000},
    }

    def enqueue(self, fn, *args):
        return queue.enqueue_call(getattr(common, fn), args=args)

    def enqueue_many(self, fn, arguments):
        f = getattr(common, fn)
        queue.enqueue_many([queue.prepare_data(f, args=a) for a in arguments])

    def wait(self, handle, timeout):
        return handle.latest_result(timeout=int(timeout))

    def state(self, handle):
        return f"status={handle.get_status(refresh=True)}"

    def worker_commands(self, bin_folder, n):
        argv = [f"{bin_folder}/rq", "worker", "-u", self.url]
        if self.key == "simple":
            argv += ["-q", "-w", "rq.SimpleWorker"]
        return [([*argv, "default"], {}) for _ in range(n)]
