"""Code and arguments as they travel: what is refused, in which words, and what a worker makes of them."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import logging
import os
import pickle
import socket
import sqlite3
import subprocess
import sys
import textwrap
import threading
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest
import redis

import envq.code.payload
from envq.code.payload import (
    MINOR,
    Blob,
    Header,
    PathReference,
    load_arguments,
    load_code,
    pack_arguments,
    pack_code,
    ship,
    travels_by_value,
)
from envq.errors import PayloadError, PayloadTooLarge, PythonVersionMismatch
from envq.settings import Limits

LIMITS = Limits()
ROOT = Path(envq.code.payload.__file__).parents[2]
WHAT = "variable cartpole"


def pack(obj: object, limits: Limits = LIMITS) -> Blob:
    return pack_code(obj, what=WHAT, limits=limits)


def refusal(obj: object, limits: Limits = LIMITS) -> str:
    with pytest.raises(PayloadError) as caught:
        pack(obj, limits)
    message = str(caught.value)
    assert message.startswith(f"{WHAT}: ")
    assert "\n" not in message
    return message


def capture(value: object) -> Callable[[], object]:
    captured = value

    def make() -> object:
        return captured

    return make


def python(code: str, *, stdin: bytes = b"", paths: tuple[Path, ...] = ()) -> bytes:
    """What another process of this interpreter writes, which has envq and ``paths`` to import from."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [ROOT, *paths]))}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], input=stdin, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


LOAD_AND_CALL = """
    import sys
    from envq.code.payload import Blob, load_code
    code = load_code(Blob.unpack(sys.stdin.buffer.read()))
    print(repr(code()))
"""


def test_a_closure_runs_in_a_process_that_cannot_import_it() -> None:
    def work() -> int:
        return factor * 2

    factor = 21
    assert python(LOAD_AND_CALL, stdin=pack(work).pack()).split() == [b"42"]


def test_main_code_runs_elsewhere_with_all_that_cloudpickle_alone_would_lose() -> None:
    driver = """
        import functools, sys, typing
        from envq.code.payload import pack_code
        from envq.settings import Limits
        UserId = typing.NewType("UserId", int)
        @functools.lru_cache
        def fibonacci(n: UserId): return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
        class Model:
            @functools.cached_property
            def size(self): return 3
        def work(): return fibonacci(10), Model().size
        blob = pack_code(work, what="function work", limits=Limits())
        sys.stdout.buffer.write(blob.pack())
    """
    assert python(LOAD_AND_CALL, stdin=python(driver)) == b"(55, 3)\n"


def test_code_of_a_child_that_multiprocessing_spawned_goes_by_value(tmp_path: Path) -> None:
    script = tmp_path / "spawns.py"
    script.write_text(
        textwrap.dedent("""
        import multiprocessing
        from envq.code.payload import pack_code
        from envq.settings import Limits
        import cloudpickle
        def work(): return 7
        def pack(queue):
            blob = pack_code(work, what="w", limits=Limits())
            queue.put((blob.header.by_value, blob.header.digest, cloudpickle.list_registry_pickle_by_value()))
        if __name__ == "__main__":
            spawn = multiprocessing.get_context("spawn")
            queue = spawn.SimpleQueue()
            child = spawn.Process(target=pack, args=(queue,))
            child.start()
            child.join()
            by_value, digest, registered = queue.get()
            print(by_value, digest == pack_code(work, what="w", limits=Limits()).header.digest, registered)
    """)
    )
    assert python(f"import runpy; runpy.run_path({str(script)!r}, run_name='other')") == b""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    out = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
    assert out.stdout == "True True set()\n"


def test_the_header_is_readable_without_unpickling() -> None:
    blob = pack(capture(1))
    first_line = blob.pack().partition(b"\n")[0]
    header = json.loads(first_line.removeprefix(b"envq1 "))
    assert header["what"] == WHAT
    assert header["python"] == MINOR == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert header["cloudpickle"] == cloudpickle.__version__
    assert header["by_value"] is True
    assert header["size"] == len(blob.body)
    assert (header["host"], header["pid"]) == (socket.gethostname(), os.getpid())


def test_a_blob_survives_packing_and_ignores_fields_of_later_versions() -> None:
    blob = pack(capture(1))
    assert Blob.unpack(blob.pack()) == blob
    later = json.dumps(json.loads(blob.header.to_json()) | {"new_field": 1})
    assert Header.from_json(later) == blob.header


@pytest.mark.parametrize("data", [b"", b"garbage", b"envq1 {}\n", b"envq1 no json\nbody", b"envq1 [1]\nbody"])
def test_garbage_is_no_blob(data: bytes) -> None:
    with pytest.raises(PayloadError):
        Blob.unpack(data)


def test_a_truncated_blob_is_refused() -> None:
    with pytest.raises(PayloadError, match=f"code of {WHAT}"):
        Blob.unpack(pack(capture(1)).pack()[:-1])


def _other_minor(blob: Blob) -> Blob:
    return dataclasses.replace(blob, header=dataclasses.replace(blob.header, python="3.7"))


def test_by_value_code_of_another_python_is_refused_before_unpickling(monkeypatch: pytest.MonkeyPatch) -> None:
    blob = _other_minor(pack(capture(1)))
    with monkeypatch.context() as patch:
        patch.setattr(pickle, "loads", pytest.fail)
        with pytest.raises(PythonVersionMismatch) as caught:
            load_code(blob)
    assert WHAT in str(caught.value)
    assert "3.7" in str(caught.value)
    assert MINOR in str(caught.value)


def test_importable_code_of_another_python_is_accepted() -> None:
    assert load_code(_other_minor(pack((json.dumps, None)))) == (json.dumps, None)
    assert load_code(_other_minor(pack(PathReference("json:dumps")))) is json.dumps


def test_a_blob_of_a_newer_format_is_refused_before_unpickling(monkeypatch: pytest.MonkeyPatch) -> None:
    blob = pack(json.dumps)
    newer = dataclasses.replace(blob, header=dataclasses.replace(blob.header, format=99))
    with monkeypatch.context() as patch:
        patch.setattr(pickle, "loads", pytest.fail)
        with pytest.raises(PayloadError, match="newer envq"):
            load_code(newer)


CONNECTIONS: list[tuple[Callable[[], Any], str]] = [
    (redis.Redis, "a Redis client"),
    (lambda: redis.Redis().pubsub(), "a Redis client"),
    (redis.ConnectionPool, "a Redis connection"),
    (lambda: sqlite3.connect(":memory:"), "a database connection"),
    (socket.socket, "a socket"),
    (lambda: io.TextIOWrapper(io.FileIO(__file__)), "an open file"),
    (lambda: io.FileIO(__file__), "an open file"),
    (threading.Lock, "a lock"),
    (threading.RLock, "a lock"),
    (threading.Thread, "a thread"),
]


@pytest.mark.parametrize(("build", "kind"), CONNECTIONS)
def test_a_captured_connection_is_refused_by_its_name(build: Callable[[], Any], kind: str) -> None:
    conn = build()
    try:

        def make() -> object:
            return conn

        message = refusal((make, None))
    finally:
        getattr(conn, "close", lambda: None)()
    assert "closure variable 'conn' of make" in message
    assert kind in message
    assert "initializer of an envq.EnvironmentVariable" in message


def _with_globals(**values: object) -> Callable[[], object]:
    """A function of a module that nobody can import, which reads the global ``db``."""
    namespace: dict[str, Any] = {"__name__": "__main__", **values}
    exec("def make(): return db\ndef outer(): return make()", namespace)
    return namespace["outer"]


def test_the_global_of_a_called_function_is_named() -> None:
    assert "global 'db' of make is a lock" in refusal(_with_globals(db=threading.Lock()))


def test_the_place_inside_a_captured_container_is_named() -> None:
    config = {"pools": [1, threading.Lock()]}
    assert "global 'db' of make at ['pools'][1] is a lock" in refusal(_with_globals(db=config))


def test_default_arguments_are_named() -> None:
    lock = threading.Lock()

    def positional(a: int, conn: object = lock) -> object:
        return conn

    def keyword(*, conn: object = lock) -> object:
        return conn

    assert "default argument 'conn' of positional" in refusal(positional)
    assert "default argument 'conn' of keyword" in refusal(keyword)


def test_a_bound_object_and_a_partial_argument_are_named() -> None:
    assert "the object that get is bound to is a Redis client" in refusal(redis.Redis().get)
    assert "partial argument 0 of" in refusal(functools.partial(capture, threading.Lock()))


def test_what_pickle_refuses_is_named_with_its_reason() -> None:
    generator = (number for number in range(3))
    message = refusal(capture(generator))
    assert "closure variable 'captured' of make (a builtins.generator)" in message


def test_functions_that_call_each_other_do_not_hide_the_culprit() -> None:
    def even(n: int) -> object:
        return n == 0 or odd(n - 1)

    def odd(n: int) -> object:
        return zone and even(n - 1)

    zone = threading.Lock()
    assert "closure variable 'zone' of odd" in refusal(even)


def test_standard_streams_may_be_used() -> None:
    assert load_code(pack(lambda: print("", end="", file=sys.stderr)))() is None


def test_too_big_code_names_the_heaviest_capture_the_sizes_and_the_setting() -> None:
    with pytest.raises(PayloadTooLarge) as caught:
        pack(capture(b"x" * 5000), Limits(warn_bytes=100, max_bytes=4000))
    message = str(caught.value)
    for part in (WHAT, "closure variable 'captured' of make", "4,000", "ENVQ_MAX_PAYLOAD_BYTES"):
        assert part in message


def test_big_code_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    function, limits = capture(os.urandom(5000)), Limits(warn_bytes=4000, max_bytes=100_000)
    with caplog.at_level(logging.WARNING, logger="envq"):
        pack(function, limits)
        pack(function, limits)
    assert [WHAT in record.getMessage() for record in caplog.records] == [True]


@pytest.fixture
def local_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module that only this process can import."""
    source = "FACTOR = 3\nclass Model: pass\ndef triple(x): return inner(x) * FACTOR\ndef inner(x): return x\n"
    (tmp_path / "only_here.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__("only_here")
    yield module
    if "only_here" in cloudpickle.list_registry_pickle_by_value():
        cloudpickle.unregister_pickle_by_value(module)
    sys.modules.pop("only_here", None)


TRY_TO_LOAD = """
    import sys
    from envq.errors import PayloadError
    from envq.code.payload import Blob, load_code
    try:
        load_code(Blob.unpack(sys.stdin.buffer.read()))
    except PayloadError as error:
        print(error)
"""


def _calls_triple(module: ModuleType) -> tuple[Callable[[], int], Callable[[], int]]:
    triple = module.triple
    return (lambda: triple(5)), (lambda: module.triple(5))


def test_a_module_missing_on_the_worker_is_named_with_advice(local_module: ModuleType) -> None:
    for function in _calls_triple(local_module):
        message = python(TRY_TO_LOAD, stdin=pack(function).pack()).decode()
        for part in (WHAT, "'only_here'", "install", "envq.ship('only_here')"):
            assert part in message


def test_a_shipped_module_goes_along(local_module: ModuleType) -> None:
    ship("only_here")
    assert travels_by_value(local_module.triple)
    for function in _calls_triple(local_module):
        assert python(LOAD_AND_CALL, stdin=pack(function).pack()).split() == [b"15"]


def test_a_shipped_module_is_part_of_the_digest(local_module: ModuleType, tmp_path: Path) -> None:
    ship(local_module)
    before = [pack(function).header.digest for function in _calls_triple(local_module)]
    source = (tmp_path / "only_here.py").read_text().replace("FACTOR = 3", "FACTOR = 44")
    (tmp_path / "only_here.py").write_text(source)
    local_module.FACTOR = 44
    after = [pack(function).header.digest for function in _calls_triple(local_module)]
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_a_shipped_module_imported_inside_a_function_is_warned_about(
    local_module: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    def make() -> object:
        import only_here  # pyright: ignore[reportMissingImports]

        return only_here

    ship(local_module)
    with caplog.at_level(logging.WARNING, logger="envq"):
        pack(make)
    assert "only_here in" in caplog.text


def test_a_name_missing_on_the_worker_is_named(local_module: ModuleType, tmp_path: Path) -> None:
    blob = pack((local_module.triple,))
    older = tmp_path / "older"
    older.mkdir()
    (older / "only_here.py").write_text("")
    message = python(TRY_TO_LOAD, stdin=blob.pack(), paths=(older,)).decode()
    assert "'triple'" in message
    assert "only_here" in message


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("json", "Python itself"),
        ("math", "Python itself"),
        ("envq.code.payload", "every worker has envq"),
        ("not_there_at_all", "not importable"),
        (42, "takes a module"),
    ],
)
def test_what_cannot_be_shipped_is_refused(module: Any, reason: str) -> None:
    before = cloudpickle.list_registry_pickle_by_value()
    with pytest.raises(PayloadError, match=reason):
        ship(module)
    assert cloudpickle.list_registry_pickle_by_value() == before


def test_importable_code_goes_by_name() -> None:
    assert not travels_by_value(json.dumps)
    assert not travels_by_value(functools.partial(json.dumps, indent=1))
    assert not travels_by_value(len)
    assert not travels_by_value(json.JSONEncoder().encode)
    assert not travels_by_value(PathReference("json:dumps"))
    assert travels_by_value(lambda: None)
    assert travels_by_value(functools.partial(capture(1)))
    assert travels_by_value(functools.lru_cache(capture(1)))


def test_path_references_are_resolved_when_loaded() -> None:
    assert load_code(pack((PathReference("json:dumps"), None))) == (json.dumps, None)
    assert PathReference("json:dumps")([1]) == "[1]"


@pytest.mark.parametrize("path", ["", "json", "json.dumps", ":dumps", "json:", "a b:c", "json:dumps()"])
def test_a_malformed_path_is_refused(path: str) -> None:
    with pytest.raises(PayloadError, match=r"package\.module:callable"):
        PathReference(path)


@pytest.mark.parametrize(
    ("path", "reason"),
    [("not_there_at_all:f", "no module 'not_there_at_all'"), ("json:nothing", "nothing"), ("os:sep", "not callable")],
)
def test_a_path_that_leads_nowhere_says_so(path: str, reason: str) -> None:
    with pytest.raises(PayloadError, match=reason):
        load_code(pack(PathReference(path)))


def test_plain_arguments_travel_as_they_are() -> None:
    args = (1, "a", {"b": [2.5, None]}, Path("x"))
    assert pack_arguments(args, {"k": (1, 2)}, what="function step", limits=LIMITS) is None


def test_arguments_that_only_this_process_knows_are_packed() -> None:
    packed = pack_arguments((capture(5),), {"k": 1}, what="function step", limits=LIMITS)
    assert packed is not None
    (function,), kwargs = load_arguments(packed, what="function step")
    assert function() == 5
    assert kwargs == {"k": 1}


def test_instances_of_shipped_classes_are_packed(local_module: ModuleType) -> None:
    model = local_module.Model()
    assert pack_arguments((model,), {}, what="f", limits=LIMITS) is None
    ship(local_module)
    packed = pack_arguments((model,), {}, what="f", limits=LIMITS)
    assert packed is not None
    code = """
        import sys
        from envq.code.payload import load_arguments
        print(type(load_arguments(sys.stdin.buffer.read(), what="f")[0][0]).__name__)
    """
    assert python(code, stdin=packed) == b"Model\n"


def test_packed_arguments_of_another_python_are_refused_before_unpickling(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack_arguments((capture(5),), {}, what="function step", limits=LIMITS)
    assert packed is not None
    with monkeypatch.context() as patch:
        patch.setattr(pickle, "loads", pytest.fail)
        with pytest.raises(PythonVersionMismatch, match=r"function step.*3\.7"):
            load_arguments(b"3.7" + packed.removeprefix(MINOR.encode()), what="function step")


@pytest.mark.parametrize(
    ("args", "kwargs", "place"),
    [
        ((redis.Redis(),), {}, "argument 0 is a Redis client"),
        ((1,), {"db": [redis.Redis()]}, r"argument 'db' at \[0\] is a Redis client"),
        ((capture(threading.Lock()),), {}, "argument 0, closure variable 'captured' of make is a lock"),
    ],
)
def test_an_argument_that_cannot_travel_is_named(args: Any, kwargs: Any, place: str) -> None:
    with pytest.raises(PayloadError, match=place) as caught:
        pack_arguments(args, kwargs, what="function step", limits=LIMITS)
    assert str(caught.value).startswith("function step: ")
    assert "EnvironmentVariable" in str(caught.value)


def test_too_big_arguments_are_refused_by_position() -> None:
    with pytest.raises(PayloadTooLarge, match=r"argument 1.*4,000.*ENVQ_MAX_PAYLOAD_BYTES"):
        pack_arguments((1, b"x" * 5000), {}, what="f", limits=Limits(warn_bytes=100, max_bytes=4000))


def test_checking_small_plain_arguments_takes_microseconds() -> None:
    def check() -> None:
        pack_arguments((1, "a"), {"b": 2.5}, what="f", limits=LIMITS)

    assert min(timeit.repeat(check, number=200, repeat=5)) / 200 < 30e-6


def test_packing_leaves_no_registration_behind() -> None:
    before = cloudpickle.list_registry_pickle_by_value()
    pack(capture(1))
    assert cloudpickle.list_registry_pickle_by_value() == before
