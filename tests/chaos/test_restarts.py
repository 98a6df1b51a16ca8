"""Redis restarts, with and without its data: everybody goes on by himself, and drivers declare again what is lost."""

from __future__ import annotations

from collections.abc import Callable
from operator import neg
from pathlib import Path
from typing import Any

import pytest
from support.servers import Server
from support.waiting import eventually
from support.workers import WorkerProcess

import envq

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(180)]

OwnServer = Callable[..., Server]
Worker = Callable[..., WorkerProcess]
negative = envq.task(neg)


@pytest.fixture
def builds(tmp_path: Path) -> Path:
    """One line for each time that a variable was built, or let go."""
    notes = tmp_path / "builds"
    notes.touch()
    return notes


def declare(name: str, builds: Path) -> None:
    def note(what: str) -> None:
        with builds.open("a") as file:
            file.write(f"{what} {name}\n")

    def make() -> str:
        note("made")
        return name

    setattr(
        envq.env, name, envq.EnvironmentVariable(make, lambda v: v, driver="never", teardown=lambda _: note("let go"))
    )


def reading(name: str) -> Any:
    def read() -> str:
        return str(getattr(envq.env, name))

    return envq.task(read)


def wiped_by_a_restart(server: Server) -> None:
    server.kill()
    server.start()


def wiped_by_flushall(server: Server) -> None:
    with server.client() as admin:
        admin.flushall()


@pytest.mark.parametrize("wipe", [wiped_by_a_restart, wiped_by_flushall])
def test_after_a_wipe_what_is_enqueued_finds_its_variables_and_nothing_is_built_again(
    wipe: Callable[[Server], None], own_server: OwnServer, worker: Worker, builds: Path
) -> None:
    server = own_server()
    running = worker("-w", "2", url=server.url(), executors=2)
    client = envq.connect(server.url(), retry_for=30)
    declare("one", builds)
    declare("two", builds)
    read_one, read_two = reading("one"), reading("two")
    envq.wait_ready("two", workers=2, timeout=20)
    assert envq.get(read_one.enqueue(), timeout=20) == "one"
    names = running.executors()
    before = client.declarations.snapshot().declarations
    wipe(server)

    assert envq.get([read_two.enqueue(), read_one.enqueue()], timeout=30) == ["two", "one"]
    after = client.declarations.snapshot().declarations
    assert {name: each.identity for name, each in after.items()} == {n: each.identity for n, each in before.items()}
    eventually(lambda: running.executors() == names, timeout=20)
    eventually(lambda: len(client.executors.all()) == 2, timeout=20)
    envq.wait_ready("one", workers=2, timeout=20)
    assert sorted(builds.read_text().splitlines()) == ["made one", "made one", "made two", "made two"]


def test_the_long_way_of_enqueuing_declares_again_as_well(own_server: OwnServer, worker: Worker, builds: Path) -> None:
    server = own_server()
    worker(url=server.url())
    client = envq.connect(server.url(), retry_for=30)
    declare("one", builds)
    read = reading("one")
    assert envq.get(read.enqueue(), timeout=20) == "one"
    wiped_by_a_restart(server)
    job = read.options(job_id="mine").enqueue()
    assert set(client.declarations.snapshot().declarations) == {"one"}
    assert envq.get(job, timeout=30) == "one"
    assert builds.read_text().splitlines() == ["made one"]


def test_a_new_declaration_after_a_wipe_brings_the_others_back(own_server: OwnServer, builds: Path) -> None:
    server = own_server()
    client = envq.connect(server.url(), retry_for=30)
    declare("one", builds)
    declare("two", builds)
    wiped_by_a_restart(server)
    declare("three", builds)
    assert set(client.declarations.snapshot().declarations) == {"one", "two", "three"}


def test_what_another_process_removed_is_not_declared_again(own_server: OwnServer, builds: Path) -> None:
    server = own_server()
    client = envq.connect(server.url())
    declare("one", builds)
    client.declarations.remove("one")
    negative.enqueue(1)
    assert client.declarations.snapshot().declarations == {}


def test_a_store_restored_from_an_older_copy_gets_the_declarations_since(
    own_server: OwnServer, worker: Worker, builds: Path
) -> None:
    server = own_server()
    running = worker(url=server.url())
    client = envq.connect(server.url(), retry_for=30)
    declare("one", builds)
    with server.client() as admin:
        admin.save()
    old_copy = (server.directory / "dump.rdb").read_bytes()
    declare("two", builds)
    read_one, read_two = reading("one"), reading("two")
    assert envq.get([read_one.enqueue(), read_two.enqueue()], timeout=20) == ["one", "two"]
    names = running.executors()
    server.kill()
    (server.directory / "dump.rdb").write_bytes(old_copy)
    server.start()
    assert envq.get([read_one.enqueue(), read_two.enqueue()], timeout=30) == ["one", "two"]
    assert set(client.declarations.snapshot().declarations) == {"one", "two"}
    eventually(lambda: running.executors() == names, timeout=20)
    assert sorted(builds.read_text().splitlines()) == ["made one", "made two"]


def test_who_waits_for_a_job_that_a_wipe_took_is_told(own_server: OwnServer) -> None:
    server = own_server()
    envq.connect(server.url(), retry_for=30)
    job = negative.enqueue(1)
    wiped_by_a_restart(server)
    with pytest.raises(envq.JobGone, match="deleted or has expired"):
        envq.get(job, timeout=20)


def test_a_result_that_lies_before_the_position_waited_from_is_found(own_server: OwnServer, worker: Worker) -> None:
    """Ids in a stream are times: where another server took over whose clock is behind, later ones are lower."""
    server = own_server()
    worker(url=server.url())
    envq.connect(server.url())
    good, bad = negative.enqueue(1), negative.enqueue("text")
    good.result_after = bad.result_after = "9999999999999-0"
    assert envq.get(good, timeout=20) == -1
    with pytest.raises(envq.JobFailed, match="TypeError"):
        envq.get(bad, timeout=20)


def test_with_an_append_only_file_everything_is_there_again(
    own_server: OwnServer, worker: Worker, builds: Path
) -> None:
    server = own_server("--appendonly", "yes", "--appendfsync", "always")
    running = worker("-w", "2", url=server.url(), executors=2)
    client = envq.connect(server.url(), retry_for=30)
    declare("one", builds)
    read = reading("one")
    envq.wait_ready("one", workers=2, timeout=20)
    names, generation = running.executors(), client.declarations.generation()
    jobs = negative.options(queue="later").map(range(200))
    server.kill()
    server.start()
    assert envq.get(read.enqueue(), timeout=30) == "one"
    assert envq.get(negative.enqueue_in(1, 1), timeout=30) == -1
    assert builds.read_text().splitlines() == ["made one", "made one"]
    worker("later", url=server.url())
    assert envq.get(jobs, timeout=30) == [-x for x in range(200)]
    assert client.declarations.generation() == generation
    assert running.executors() == names
