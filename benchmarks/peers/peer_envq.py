"""envq."""

from peers import common
from peers.common import CONFIG, URL

VARIABLES = "BENCH_VARIABLES"  # how many further variables are declared, which no job reads


def make() -> list[int]:
    return [0]


def identity(value: list[int]) -> list[int]:
    return value


def trivial(value: list[int]) -> list[int]:
    value[0] = 0
    return value


if CONFIG:
    import os

    import envq

    fns = {name: envq.task(getattr(common, name)) for name in ("noop", "stamp", "sleeper")}

    if CONFIG.startswith("variable"):

        @envq.task
        def noop(i, _payload=b""):
            return common.noop(i + 0 * (make() if CONFIG.endswith("none") else envq.env.subject)[0])

        fns["noop"] = noop


class Peer(common.Peer):
    name, venv, bulk, keeps_record = "envq", "envq", "native", True
    configs = {
        "default": {"label": "stock, INFO log", "role": "default"},
        "quiet": {"label": "--quiet", "role": "fast"},
        "variable:none": {"label": "the same job without reading it", "role": ""},
        "variable:identity": {"label": "each job reads a variable, identity reset", "role": ""},
        "variable:trivial": {"label": "each job reads a variable, trivial reset", "role": ""},
    }

    def open(self):
        self.client = envq.connect(URL)
        if self.key.startswith("variable"):
            envq.env.subject = envq.EnvironmentVariable(make, trivial if self.key.endswith("trivial") else identity)
        for i in range(int(os.environ.get(VARIABLES, "0"))):
            setattr(envq.env, f"unused{i}", envq.EnvironmentVariable(make, identity))

    def close(self):
        self.client.close()

    def enqueue(self, fn, *args):
        return fns[fn].enqueue(*args)

    def enqueue_many(self, fn, arguments):
        fns[fn].starmap(arguments)

    def wait(self, handle, timeout):
        return envq.get(handle, timeout=timeout)

    def state(self, handle):
        return f"status={handle.get_status(refresh=True)}"

    def worker_commands(self, bin_folder, n):
        argv = [f"{bin_folder}/envq", "worker", "-u", self.url, "default", "-w", str(n)]
        if self.key == "quiet":
            argv.append("--quiet")
        return [(argv, {})]
