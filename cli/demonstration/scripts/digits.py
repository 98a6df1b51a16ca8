"""A classifier in every worker: trained once, used by a thousand jobs, replaced while jobs are running.

A driver like yours. `envq demo` runs it; by hand, with a Redis beside it:

    envq worker --workers 2 --namespace demo &
    python digits.py redis://localhost:6379/0
"""

# pyright: basic, reportMissingImports=false
# (what it imports besides envq need not be installed where types are checked, and has few)

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import os
import pickle
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

import redis
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

import envq

parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("--executors", type=int, default=2)
parser.add_argument("--predictions", type=int, default=1000)
parser.add_argument("--seconds", type=float, default=1.2, help="what a training must take at least")
parser.add_argument("--without-reset", action="store_true", help="to see what goes wrong without it")
options = parser.parse_args()

URL: str = options.url
HELD_OUT = 1000  # the last ones of 1,797 digits are not used for training
SECONDS_BETWEEN_JOBS = 0.01


# ---- our own book-keeping in Redis, so that nobody has to take envq's word for anything


def note(what: str, **facts: object) -> None:
    """Write down what happened, and in which process."""
    entry: dict[str, Any] = {"what": what, "pid": os.getpid(), "parent": os.getppid(), "at": time.time()}
    with redis.Redis.from_url(URL) as book:
        book.rpush("demo:digits", json.dumps(entry | facts))


# ---- the value: slow to make, and nothing that pickle could send anywhere


class Reader:
    """Reads handwritten digits, and keeps a record of what it has read in a database of its own."""

    def __init__(self, version: int, neurons: int, epochs: int) -> None:
        self.version = version
        self.model = trained(neurons, epochs)
        self.database = sqlite3.connect(":memory:")
        self.database.execute("CREATE TABLE readings (digit INTEGER)")
        self.fresh = look(self)

    def read(self, pixels: Any) -> int:
        digit = int(self.model.predict(pixels.reshape(1, -1))[0])
        self.database.execute("INSERT INTO readings VALUES (?)", (digit,))
        return digit


def trained(neurons: int, epochs: int) -> MLPClassifier:
    images, labels = training_digits()
    model = MLPClassifier((neurons,), random_state=0)
    with threadpool_limits(1):  # every executor has a processor; threads would only be in each other's way
        for _ in range(epochs):
            model.partial_fit(images, labels, classes=range(10))
    return model


def training_digits() -> tuple[Any, Any]:
    digits: Any = load_digits()
    return digits.data[:-HELD_OUT], digits.target[:-HELD_OUT]


def held_out_digits() -> tuple[Any, Any]:
    digits: Any = load_digits()
    return digits.data[-HELD_OUT:], digits.target[-HELD_OUT:]


def look(reader: Reader) -> str:
    """What can be told of a reader by looking at it; it is the same whenever it is clean."""
    try:
        weights = hashlib.sha256()
        for layer in (*reader.model.coefs_, *reader.model.intercepts_):
            weights.update(layer.tobytes())
        (count,) = reader.database.execute("SELECT count(*) FROM readings").fetchone()
        return f"weights {weights.hexdigest()[:8]}, {count} readings"
    except (AttributeError, sqlite3.Error) as error:
        return f"broken: {error}"


# ---- the environment variable: how a reader is made, put back, and let go


def make_reader() -> Reader:
    return noted(Reader(1, neurons=128, epochs=EPOCHS))


def make_better_reader() -> Reader:
    return noted(Reader(2, neurons=160, epochs=EPOCHS))


def noted(reader: Reader) -> Reader:
    note("build", found=reader.fresh, version=reader.version)
    return reader


def reset_reader(reader: Reader) -> Any:
    reader.database.execute("DELETE FROM readings")  # raises where that is impossible: then it is made anew
    return reader if look(reader) == reader.fresh else envq.REBUILD


def leave_reader(reader: Reader) -> Reader:
    return reader


def close_reader(reader: Reader) -> None:
    reader.database.close()


# ---- the jobs


@envq.task
def predict(pixels: Any) -> int:
    reader = envq.env.reader
    note("job", found=look(reader), version=reader.version, phase="predictions")
    return reader.read(pixels)


@envq.task
def glance(phase: str) -> int:
    """Look at the reader and leave a trace in it, where it still takes one; tells in which process."""
    reader = envq.env.reader
    note("job", found=look(reader), version=reader.version, phase=phase)
    with contextlib.suppress(sqlite3.Error):
        reader.database.execute("INSERT INTO readings VALUES (0)")
    return os.getpid()


@envq.task
def sabotage(deed: Callable[[Reader], object], needs_rebuild: bool) -> None:
    """Break the reader on purpose, then raise."""
    note("sabotage", deed=deed.__name__, needs_rebuild=needs_rebuild)
    deed(envq.env.reader)
    raise Sabotage(deed.__name__)


class Sabotage(Exception):
    """Raised by jobs that broke something on purpose."""


def scribble(reader: Reader) -> None:
    reader.database.executemany("INSERT INTO readings VALUES (?)", [(7,)] * 1000)


def forget_everything(reader: Reader) -> None:
    del reader.model.coefs_


def become_confused(reader: Reader) -> None:
    reader.model.coefs_[0][:] *= -1


def hang_up(reader: Reader) -> None:
    reader.database.close()


# ---- the driver


def build_directly() -> tuple[Reader, int]:
    """One reader in this process, without envq: what the results and the time are compared with.

    How long a training takes depends on the machine: with it comes the number of epochs that take long enough here.
    """
    epochs = 100
    while True:
        started = time.perf_counter()
        reader = Reader(1, neurons=128, epochs=epochs)
        seconds = time.perf_counter() - started
        if seconds > options.seconds:
            note("direct", seconds=seconds, epochs=epochs, refusal=refusal_to_pickle(reader))
            return reader, epochs
        epochs = math.ceil(epochs * 1.2 * options.seconds / seconds)


def refusal_to_pickle(reader: Reader) -> str:
    try:
        pickle.dumps(reader)
    except TypeError as error:
        return str(error)
    return ""


def declare(initializer: Callable[[], Reader]) -> None:
    reinitializer = leave_reader if options.without_reset else reset_reader
    # driver="never": this process has a reader of its own already, to compare with.
    envq.env.reader = envq.EnvironmentVariable(initializer, reinitializer, teardown=close_reader, driver="never")


def finish(jobs: list[Any]) -> list[Any]:
    """Wait for jobs that should succeed; count those that did not."""
    outcomes = envq.get(jobs, timeout=120, return_exceptions=True)
    note("finished", jobs=len(jobs), failed=sum(isinstance(each, Exception) for each in outcomes))
    return outcomes


def predict_all(direct: Reader) -> None:
    images, labels = (each[: options.predictions] for each in held_out_digits())
    started = time.perf_counter()
    answers = finish(predict.map(images))
    seconds = time.perf_counter() - started
    expected = [direct.read(each) for each in images]
    note("predictions", count=len(answers), seconds=seconds, **compared(answers, expected, labels))
    note("gallery", pictures=images[:8].astype(int).tolist(), answers=[str(each) for each in answers[:8]])


def compared(answers: list[Any], expected: list[int], labels: Any) -> dict[str, object]:
    """Through the queue and directly: how many are the same, and how many are right."""
    return {
        "same": sum(one == other for one, other in zip(answers, expected, strict=True)),
        "right_by_queue": sum(each == label for each, label in zip(answers, labels.tolist(), strict=True)),
        "right_directly": sum(each == label for each, label in zip(expected, labels.tolist(), strict=True)),
    }


def break_it_on_purpose() -> None:
    deeds = {scribble: False, forget_everything: True, become_confused: True, hang_up: True}
    jobs: list[Any] = []
    looks: list[Any] = []
    for deed, needs_rebuild in deeds.items():
        jobs.append(sabotage.enqueue(deed, needs_rebuild))
        looks += glance.map(["sabotage"] * 4)
    outcomes = envq.get(jobs, timeout=120, return_exceptions=True)
    note("sabotaged", jobs=len(jobs), raised=sum("Sabotage" in str(each) for each in outcomes))
    finish(looks)


def look_everywhere(phase: str) -> None:
    """Send jobs until each executor has had one."""
    seen: set[int] = set()
    deadline = time.monotonic() + 60
    while len(seen) < options.executors and time.monotonic() < deadline:
        seen |= {each for each in finish(glance.map([phase] * 10)) if isinstance(each, int)}


class Traffic(threading.Thread):
    """Other people's jobs: one every hundredth of a second, whatever we do meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = "before"
        self.jobs: list[Any] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(SECONDS_BETWEEN_JOBS):
            self.jobs.append(glance.enqueue(self.phase))


def take_over_a_second_version() -> None:
    traffic = Traffic()
    traffic.start()
    try:
        time.sleep(1)
        declare(make_better_reader)
        traffic.phase = "after"  # what is enqueued from here on must not see the first version
        note("declared", version=2)
        envq.wait_ready("reader", workers=options.executors, timeout=60)
        time.sleep(1)
    finally:
        traffic.over.set()
        traffic.join()
    finish(traffic.jobs)
    look_everywhere("after")


if __name__ == "__main__":
    direct_reader, EPOCHS = build_directly()
    envq.connect(URL, namespace="demo")
    declared_at = time.perf_counter()
    declare(make_reader)
    envq.wait_ready("reader", workers=options.executors, timeout=120)
    note("ready", seconds=time.perf_counter() - declared_at)

    predict_all(direct_reader)
    break_it_on_purpose()
    look_everywhere("sabotage")
    take_over_a_second_version()
