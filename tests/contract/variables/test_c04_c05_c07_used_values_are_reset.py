"""C4, C5, C7: what a reset is, what it is done to, and what the first job sees."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.diary import Diary
from support.jobs import run, run_all

import envq
from envq.driver.client import Client
from envq.environment import env

pytestmark = pytest.mark.usefixtures("deployment")
Declare = Callable[..., None]


def test_the_first_job_sees_the_value_as_the_initializer_made_it(client: Client, declare: Declare) -> None:
    declare("counter", lambda: 0, lambda x: x + 1)
    assert run_all(lambda: env.counter, 3) == [0, 1, 2]


def test_without_a_reinitializer_the_initializer_runs_again(client: Client, declare: Declare, diary: Diary) -> None:
    write = diary.write

    def make() -> list[int]:
        write("built")
        return [1, 2, 3]

    declare("numbers", make)

    def append() -> list[int]:
        env.numbers.append(4)
        return env.numbers

    assert run_all(append, 3) == [[1, 2, 3, 4]] * 3
    diary.wait_for(*["built"] * 4)


def test_a_reinitializer_puts_the_same_object_back(client: Client, declare: Declare) -> None:
    def zero(array: list[int]) -> list[int]:
        array[:] = [0] * 4
        return array

    declare("array", lambda: [0] * 4, zero)

    def write_at_random_place() -> tuple[list[int], int]:
        before = list(env.array)
        env.array[2] = 1
        return before, id(env.array)

    results = run_all(write_at_random_place, 3)
    assert [before for before, _ in results] == [[0] * 4] * 3
    assert len({identity for _, identity in results}) == 1


def test_the_identity_keeps_what_jobs_change(client: Client, declare: Declare) -> None:
    declare("kept", lambda: [], lambda value: value)

    def append() -> int:
        env.kept.append(1)
        return len(env.kept)

    assert run_all(append, 3) == [1, 2, 3]


def test_only_used_variables_are_reset(client: Client, declare: Declare, diary: Diary) -> None:
    write = diary.write

    def note(name: str) -> Callable[[int], int]:
        def reset(value: int) -> int:
            write(name)
            return value

        return reset

    for name in ("used", "unused", "used_too"):
        declare(name, lambda: 0, note(name))
    run(lambda: [env.used_too, env.used])
    run(lambda: None)
    assert diary.entries == ["used_too", "used"]


def test_in_one_job_every_read_gives_the_same_object(client: Client, declare: Declare) -> None:
    declare("made", lambda: object())
    assert run(lambda: len({id(env.made) for _ in range(5)})) == 1


def test_reads_by_eight_threads_of_a_job_build_it_once(client: Client, declare: Declare, diary: Diary) -> None:
    write = diary.write

    def make() -> object:
        write("built")
        return object()

    env.late = envq.EnvironmentVariable(make, lambda value: value, build="lazy")

    def read_in_threads() -> int:
        import threading

        barrier = threading.Barrier(8)
        seen: list[int] = []

        def read() -> None:
            barrier.wait()
            seen.append(id(env.late))

        threads = [threading.Thread(target=read) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return len(set(seen)) if len(seen) == 8 else -1

    assert run(read_in_threads) == 1
    assert diary.entries == ["built"]


def test_values_of_any_kind_are_only_handed_out(client: Client, declare: Declare) -> None:
    """None, and objects that refuse comparison, truth and hashing (as arrays do)."""

    class Touchy:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            raise ValueError("ambiguous")

        def __bool__(self) -> bool:
            raise ValueError("ambiguous")

    declare("touchy", Touchy, lambda value: value)
    declare("nothing", lambda: None, lambda value: value)
    assert run_all(lambda: (type(env.touchy).__name__, env.nothing), 2) == [("Touchy", None)] * 2
