"""Dramatiq."""

from peers import common
from peers.common import CONFIG, RESULT_TTL_S, URL

if CONFIG:
    import dramatiq
    from dramatiq.brokers.redis import RedisBroker
    from dramatiq.results import Results
    from dramatiq.results.backends import RedisBackend

    broker = RedisBroker(url=URL)
    broker.add_middleware(Results(backend=RedisBackend(url=URL), store_results=True, result_ttl=RESULT_TTL_S * 1000))
    dramatiq.set_broker(broker)
    fns = {k: dramatiq.actor(getattr(common, k), actor_name=k, broker=broker) for k in ("noop", "stamp", "sleeper")}


class Peer(common.Peer):
    name, venv = "Dramatiq", "dramatiq"
    configs = {
        "t8": {"label": "-p1 -t8, Results", "role": "default", "n": 5000},
        "t1-prefetch": {"label": "-p1 -t1, dramatiq_queue_prefetch=100, Results", "role": "fast", "n": 5000},
    }

    def enqueue(self, fn, *args):
        return fns[fn].send(*args)

    def wait(self, handle, timeout):
        return handle.get_result(block=True, timeout=int(timeout * 1000))

    def worker_commands(self, bin_folder, n):
        threads = "1" if self.key == "t1-prefetch" else "8"
        env = {"dramatiq_queue_prefetch": "100"} if self.key == "t1-prefetch" else {}
        return [([f"{bin_folder}/dramatiq", "-p", str(n), "-t", threads, "peers.peer_dramatiq:broker"], env)]
