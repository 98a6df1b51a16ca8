"""Where a key is set, nothing that somebody without it wrote is unpickled: not by workers, not by drivers."""

from __future__ import annotations

import pickle
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from operator import add
from pathlib import Path
from typing import Any, cast

import pytest
import redis
import rq
from support.deployment import Deployment
from support.signing import DECLARATION_KEY, KEY, OTHER_KEY, keys
from support.waiting import eventually

import envq
from envq.driver.client import Client
from envq.errors import PayloadError

ENV = {"ENVQ_SIGNING_KEY": KEY, "ENVQ_DECLARATION_KEY": DECLARATION_KEY}
JOB = "rq:job:{}"


class Touch:
    """Whoever unpickles it creates a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        from os import mkdir

        return mkdir, (str(self._path),)


@pytest.fixture(scope="module")
def deployment(server_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A worker that has both keys."""
    shared = Deployment(server_binary, tmp_path_factory.mktemp("signed"), (), ENV)
    try:
        shared.start_worker()
        yield shared
    finally:
        shared.end()


@pytest.fixture
def driver(deployment: Deployment) -> Iterator[Client]:
    """This process as a driver that has both keys as well."""
    with keys(ENV):
        yield deployment.connect()
        deployment.disconnect()


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A path that exists once somebody has unpickled what must not be."""
    return tmp_path / "unpickled"


@pytest.fixture
def held(driver: Client) -> Iterator[redis.Redis]:
    """No job is taken while this is used: what is enqueued can be changed first."""
    driver.connection.set("rq:suspended", 1)
    yield driver.connection
    driver.connection.delete("rq:suspended")


def release(held: redis.Redis) -> None:
    held.delete("rq:suspended")


def failed_with(job_id: str) -> str:
    with pytest.raises(envq.JobFailed) as caught:
        envq.get(job_id, timeout=20)
    return str(caught.value)


def evil_call(trap: Path) -> bytes:
    return zlib.compress(pickle.dumps(("operator.add", None, (Touch(trap), 1), {})))


def test_signed_jobs_run_and_their_results_are_read(driver: Client) -> None:
    assert envq.get(envq.Queue().enqueue(add, 1, 2), timeout=20) == 3
    assert envq.get(envq.Queue().enqueue_calls(add, [(n, n) for n in range(5)]), timeout=20) == [0, 2, 4, 6, 8]
    job = envq.Queue().enqueue(add, 1, 2, meta={"of": "mine"}, depends_on=envq.Queue().enqueue(add, 0, 0))
    assert envq.get(job, timeout=20) == 3
    assert envq.Job.fetch(job.id).return_value() == 3
    assert envq.Job.fetch(job.id).meta == {"of": "mine"}


def test_a_job_of_a_stock_client_is_refused_by_name_and_never_unpickled(driver: Client, trap: Path) -> None:
    job = rq.Queue(connection=driver.connection).enqueue("operator.add", Touch(trap), 1, meta={"m": Touch(trap)})
    assert f"job {job.id} is not signed" in failed_with(job.id)
    assert job.get_status() == "failed"
    assert not trap.exists()


def flip(value: bytes) -> bytes:
    return value[:-1] + bytes([value[-1] ^ 1])


def inflated_flip(value: bytes) -> bytes:
    try:
        return zlib.compress(flip(zlib.decompress(value)))
    except zlib.error:
        return flip(value)


CHANGES: dict[str, Callable[[bytes, Path], bytes]] = {
    "data": lambda value, trap: inflated_flip(value),
    "meta": lambda value, trap: pickle.dumps({"m": Touch(trap)}),
    "origin": lambda value, trap: b"other",
    "timeout": lambda value, trap: b"9999",
    "success_callback_name": lambda value, trap: b"os.getcwd",
    "failure_callback_name": lambda value, trap: b"os.getcwd",
    "webhooks": lambda value, trap: b'[{"url": "http://127.0.0.1:1/", "on": "failed"}]',
    "envq_on_crash": lambda value, trap: b"fail",
    "envq_code": lambda value, trap: b"0" * 64,
    "envq_signature": lambda value, trap: flip(value),
    "envq_meta_signature": lambda value, trap: flip(value),
}


@pytest.mark.parametrize("field", CHANGES)
def test_a_changed_record_is_refused(driver: Client, held: redis.Redis, trap: Path, field: str) -> None:
    job = envq.Queue().enqueue(add, 1, 2, meta={"of": "mine"})
    before = cast("bytes | None", cast(Any, held).hget(JOB.format(job.id), field)) or b"-"
    held.hset(JOB.format(job.id), field, cast(Any, CHANGES[field](before, trap)))
    release(held)
    assert "does not fit" in failed_with(job.id)
    assert not trap.exists()
    assert envq.get(envq.Queue().enqueue(add, 2, 2), timeout=20) == 4


def test_the_call_of_another_job_is_refused(driver: Client, held: redis.Redis) -> None:
    first, second = envq.Queue().enqueue(add, 1, 2), envq.Queue().enqueue(add, 10, 20)
    stolen: Any = held.hgetall(JOB.format(second.id))
    held.delete(JOB.format(first.id))
    held.hset(JOB.format(first.id), mapping=stolen)
    release(held)
    assert "does not fit" in failed_with(first.id)
    assert envq.get(second, timeout=20) == 30


def test_a_poisoned_call_is_not_unpickled_even_with_another_key(
    driver: Client, held: redis.Redis, trap: Path, deployment: Deployment
) -> None:
    with keys({"ENVQ_SIGNING_KEY": OTHER_KEY}):
        job = envq.Queue().enqueue(add, 1, 2)
    held.hset(JOB.format(job.id), "data", cast(Any, evil_call(trap)))
    release(held)
    assert "does not fit" in failed_with(job.id)
    assert not trap.exists()


def test_a_job_that_is_due_later_passes_the_scheduler_without_being_unpickled(driver: Client, trap: Path) -> None:
    stock = rq.Queue(connection=driver.connection)
    from datetime import timedelta

    job = stock.enqueue_in(timedelta(seconds=0), "operator.add", Touch(trap), 1, meta={"m": Touch(trap)})
    assert f"job {job.id} is not signed" in failed_with(job.id)
    assert not trap.exists()


def test_an_unsigned_dependent_is_refused_and_its_parent_is_not_harmed(driver: Client, trap: Path) -> None:
    driver.connection.set("rq:suspended", 1)
    parent = envq.Queue().enqueue(add, 1, 2)
    child = rq.Queue(connection=driver.connection).enqueue(
        "operator.add", Touch(trap), 1, depends_on=parent.id, meta={"m": Touch(trap)}
    )
    driver.connection.delete("rq:suspended")
    assert envq.get(parent, timeout=20) == 3
    assert f"job {child.id} is not signed" in failed_with(child.id)
    assert not trap.exists()


@pytest.mark.parametrize("forged", ["unsigned", "of another job", "flipped"])
def test_a_forged_result_is_not_unpickled_by_the_driver(driver: Client, trap: Path, forged: str) -> None:
    job, other = envq.Queue().enqueue(add, 1, 2), envq.Queue().enqueue(add, 10, 20)
    envq.get([job, other], timeout=20)
    stream = f"rq:results:{job.id}"
    ((_, entry),) = cast(Any, driver.connection).xrange(stream)
    if forged == "unsigned":
        del entry[b"envq_signature"]
        entry[b"return_value"] = b64encode(pickle.dumps(Touch(trap)))
    elif forged == "of another job":
        ((_, entry),) = cast(Any, driver.connection).xrange(f"rq:results:{other.id}")
    else:
        entry[b"return_value"] = b64encode(pickle.dumps(Touch(trap)))
    driver.connection.delete(stream)
    driver.connection.xadd(stream, cast(Any, entry))
    with pytest.raises(PayloadError, match=f"the result of job {job.id} is not signed, or its signature does not fit"):
        envq.get(job.id, timeout=5)
    for read in (envq.Job.fetch(job.id).return_value, envq.Job.fetch(job.id).results):
        with pytest.raises(PayloadError):
            read()
    assert not trap.exists()


def test_a_result_of_an_earlier_run_put_behind_a_later_one_is_refused(driver: Client) -> None:
    job = envq.Queue().enqueue(add, 1, 2)
    assert envq.get(job, timeout=20) == 3
    stream = f"rq:results:{job.id}"
    ((_, entry),) = cast(Any, driver.connection).xrange(stream)
    again = envq.Job[int].fetch(job.id)
    again.result_after = cast(Any, driver.connection).xrange(stream)[-1][0].decode()
    driver.connection.hset(job.key, "status", "started")
    driver.connection.xadd(stream, cast(Any, entry))
    with pytest.raises(PayloadError, match="of an earlier run"):
        envq.get(again, timeout=5)


def test_changed_code_of_a_function_is_refused(driver: Client, held: redis.Redis, trap: Path) -> None:
    job = envq.Queue().enqueue(lambda: 5)
    (code,) = [key for key in held.scan_iter("envq:default:code:*") if job.code_digest.encode() in key]
    blob = cast(bytes, cast(Any, held).get(code))
    header = blob.partition(b"\n")[0].replace(b'"size": %d' % (len(blob.partition(b"\n")[2])), b'"size": %d')
    body = pickle.dumps(Touch(trap))
    held.set(code, header % len(body) + b"\n" + body)
    release(held)
    assert "is not signed, or its signature does not fit" in failed_with(job.id)
    assert not trap.exists()


def value_of(name: str) -> Any:
    return envq.get(envq.Queue().enqueue(lambda name: getattr(envq.env, name), name), timeout=20)


def test_a_declaration_is_built_where_it_is_signed_and_an_old_one_put_back_is_refused(
    driver: Client, deployment: Deployment
) -> None:
    envq.env.replayed = envq.EnvironmentVariable(lambda: "first", lambda value: value)
    assert value_of("replayed") == "first"
    headers = driver.keys.declarations
    old = cast(Any, driver.connection).hget(headers, "replayed")
    envq.env.replayed = envq.EnvironmentVariable(lambda: "second", lambda value: value)
    assert value_of("replayed") == "second"
    driver.connection.hset(headers, "replayed", old)
    driver.connection.set(driver.keys.generation, "1:put-back")
    eventually(lambda: "'replayed', version 1, is older than one that was seen here" in deployment.worker.output)
    assert value_of("replayed") == "second"


@pytest.mark.parametrize("forged", ["unsigned", "signed with the key for jobs", "changed"])
def test_a_forged_declaration_is_logged_and_not_built(
    driver: Client, deployment: Deployment, trap: Path, forged: str
) -> None:
    name = "forged_" + forged.replace(" ", "_")
    env = {"signed with the key for jobs": {"ENVQ_SIGNING_KEY": KEY}}.get(forged, {})
    path = str(trap)

    def build() -> str:
        from pathlib import Path

        Path(path).touch()
        return "forged"

    with keys(ENV if forged == "changed" else env):
        if forged == "changed":
            setattr(envq.env, name, envq.EnvironmentVariable(lambda: "true", build="lazy"))
            header = cast(Any, driver.connection).hget(driver.keys.declarations, name)
            changed = header.replace(b'"lazy"', b'"eager"')
            driver.connection.hset(driver.keys.declarations, name, changed)
            driver.connection.set(driver.keys.generation, "1:changed")
        else:
            setattr(envq.env, name, envq.EnvironmentVariable(build, driver="never"))
    eventually(lambda: f"'{name}' is not signed, or its signature does not fit" in deployment.worker.output)
    assert not trap.exists()


def test_both_keys_serve_while_they_are_changed(driver: Client) -> None:
    job = envq.Queue().enqueue(add, 1, 2)
    assert envq.get(job, timeout=20) == 3
    with keys({"ENVQ_SIGNING_KEY": f"{OTHER_KEY},{KEY}"}):
        assert envq.Job.fetch(job.id).return_value() == 3
    with keys({"ENVQ_SIGNING_KEY": OTHER_KEY}), pytest.raises(PayloadError):
        envq.Job.fetch(job.id).return_value()


def test_a_key_in_a_file_serves_as_well_and_no_key_is_ever_shown(deployment: Deployment, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    with keys({"ENVQ_SIGNING_KEY_FILE": str(file)}):
        client = deployment.connect()
        try:
            assert envq.get(envq.Queue().enqueue(add, 3, 4), timeout=20) == 7
            assert KEY not in repr(client) + repr(client.settings)
        finally:
            deployment.disconnect()
    assert KEY not in deployment.worker.output


@pytest.mark.parametrize(
    "variables, said",
    [
        ({"ENVQ_SIGNING_KEY": "short"}, "a key in ENVQ_SIGNING_KEY is shorter than 16 characters"),
        ({"ENVQ_SIGNING_KEY_FILE": "/nowhere/key"}, "ENVQ_SIGNING_KEY_FILE=/nowhere/key cannot be read"),
        ({"ENVQ_SIGNING_KEY": KEY, "ENVQ_SIGNING_KEY_FILE": "/x"}, "both ENVQ_SIGNING_KEY and ENVQ_SIGNING_KEY_FILE"),
        ({"ENVQ_DECLARATION_KEY": "short"}, "a key in ENVQ_DECLARATION_KEY is shorter"),
    ],
)
def test_a_key_that_cannot_be_used_is_refused_at_once(variables: dict[str, str], said: str) -> None:
    with keys(variables), pytest.raises(envq.errors.ConfigurationError, match=said):
        envq.connect("redis://localhost:1/0")
