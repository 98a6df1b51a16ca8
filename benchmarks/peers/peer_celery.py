"""Celery."""

from peers import common
from peers.common import CONFIG, URL

if CONFIG:
    from celery import Celery

    app = Celery("bench", broker=URL, backend=URL)
    app.conf.broker_connection_retry_on_startup = True
    fns = {k: app.task(name=k)(getattr(common, k)) for k in ("noop", "stamp", "sleeper")}


class Peer(common.Peer):
    name, venv = "Celery", "celery"
    configs = {
        "prefork": {"label": "prefork -c1", "role": "default", "n": 3000},
        "solo": {"label": "solo, no gossip/mingle/heartbeat", "role": "fast", "n": 3000},
    }

    def enqueue(self, fn, *args):
        return fns[fn].apply_async(args)

    def wait(self, handle, timeout):
        return handle.get(timeout=timeout)

    def state(self, handle):
        return f"AsyncResult.state={handle.state}"

    def worker_commands(self, bin_folder, n):
        out = []
        for i in range(n):
            argv = [
                f"{bin_folder}/celery",
                "-A",
                "peers.peer_celery:app",
                "worker",
                "-P",
                self.key,
                "-n",
                f"w{i}@bench",
            ]
            if self.key == "prefork":
                argv += ["-c", "1"]
            else:
                argv += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
            out.append((argv, {}))
        return out
