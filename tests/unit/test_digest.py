"""The digest: equal for the same program wherever and however it runs, different for any other."""

from __future__ import annotations

import functools
import json
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import cloudpickle
import pytest
from support.pythons import find_pythons

import envq.code.digest
from envq.code.digest import code_digest
from envq.code.pickling import dump
from envq.code.shipping import travels_by_value
from envq.errors import PayloadError

PROGRAM = textwrap.dedent('''
    import abc, asyncio, collections, dataclasses, enum, functools, json, re, typing
    from fractions import Fraction

    LIMIT = 10
    TAGS = {"alpha", "beta", "gamma", "delta"}
    TABLE = {tag: len(tag) for tag in TAGS}
    PATTERN = re.compile("a+b", re.IGNORECASE)
    T = typing.TypeVar("T")

    def scale(x, factor=3, *, extra=frozenset({"p", "q", "r"})):
        return x * factor if x in {"one", "two", "three"} else extra

    class Base(abc.ABC, typing.Generic[T]):
        kind = 12
        def __init__(self):
            self.zeta, self.alpha, self.mid = 1, 2, 3
        @abc.abstractmethod
        def go(self): ...

    @dataclasses.dataclass
    class Point(Base[int]):
        x: int = 1
        options: set = dataclasses.field(default_factory=set)
        check: object = scale
        def go(self):
            return super().go(), self.__class__
        @functools.cached_property
        def half(self):
            return self.x / 2

    class Slotted:
        __slots__ = ("left", "right")

    class Color(enum.Enum):
        RED = 1
        GREEN = "green"

    class Rights(enum.IntFlag):
        READ = 1
        WRITE = 2

    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args)
        return wrapper

    @decorate
    def decorated(x):
        return scale(x)

    @functools.lru_cache(maxsize=5)
    def fibonacci(n):
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    REGISTRY = {even, odd, scale}

    def make_closure(config, callbacks):
        def closure():
            return config, [callback() for callback in callbacks]
        return closure

    def local_class():
        import collections.abc
        class Local:
            number = 60
            def __init__(self):
                self.one, self.two, self.three = 1, 2, 3
        return Local, {name: number for name, number in TABLE.items()}

    async def coroutine():
        await asyncio.sleep(0)
        return json

    async def async_generator():
        yield TAGS

    def generator():
        yield LIMIT

    class Caller:
        def __init__(self):
            self.tags = set(TAGS)
        def __call__(self):
            return PATTERN, Fraction(1, 3)

    def classes():
        return Point, Color.RED, Rights.READ | Rights.WRITE, Slotted, REGISTRY, __file__, __name__

    SUBJECTS = {
        "function": scale, "globals": lambda: (TAGS, TABLE, LIMIT), "classes": classes, "decorated": decorated,
        "cached": fibonacci, "cycle": even, "closure": make_closure(TABLE, [lambda: TAGS]),
        "local class": local_class, "coroutine": coroutine, "async generator": async_generator,
        "generator": generator, "instance": Caller(), "method": Caller().__call__, "class": Point,
        "partial": functools.partial(scale, "one", factor=LIMIT),
        "ordered": collections.OrderedDict(a=TAGS), "tuple": (scale, None, even),
    }
''')  # fmt: skip
PRINT_DIGESTS = textwrap.dedent("""
    import importlib.util
    if importlib.util.find_spec("numpy"):
        import numpy
        ARRAY = numpy.arange(6.0).reshape(2, 3)
        SUBJECTS["array"] = lambda: numpy.sum(ARRAY)
    from envq.code.digest import code_digest
    print(json.dumps({name: code_digest(subject) for name, subject in SUBJECTS.items()}))
""")


class RunProgram(Protocol):
    """Runs a script of this text, and gives the digests it prints by the name of their subject."""

    def __call__(
        self, folder: Path, text: str = ..., *, name: str = ..., seed: int = ..., python: Path = ...
    ) -> dict[str, str]: ...


@pytest.fixture(scope="module")
def run_program(tmp_path_factory: pytest.TempPathFactory) -> RunProgram:
    root = tmp_path_factory.mktemp("imports")
    _link_what_digests_need(root)

    def run(
        folder: Path,
        text: str = PROGRAM,
        *,
        name: str = "script.py",
        seed: int = 0,
        python: Path = Path(sys.executable),
    ) -> dict[str, str]:
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text + PRINT_DIGESTS)
        environment = os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(root)}
        done = subprocess.run([python, folder / name], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def _link_what_digests_need(root: Path) -> None:
    """Only what any interpreter can import: the modules of envq without its package's own imports, and cloudpickle."""
    (root / "cloudpickle").symlink_to(Path(cloudpickle.__file__).parent)
    (root / "envq").mkdir()
    package = Path(envq.code.digest.__file__).parents[1]
    for module in package.glob("*.py"):
        if module.name != "__init__.py":
            (root / "envq" / module.name).symlink_to(module)
    (root / "envq" / "code").symlink_to(package / "code")


def subjects(text: str) -> dict[str, Any]:
    """The subjects of a script of this text, as code that nobody can import."""
    namespace: dict[str, Any] = {"__name__": "__main__", "__file__": "script.py"}
    exec(text, namespace)
    return namespace["SUBJECTS"]


@functools.cache
def digests(text: str) -> dict[str, str]:
    return {name: code_digest(subject) for name, subject in subjects(text).items()}


@pytest.fixture(scope="module")
def reference(run_program: RunProgram, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return run_program(tmp_path_factory.mktemp("reference"))


@pytest.mark.parametrize("seed", [1, 2, 77])
def test_digest_does_not_depend_on_hash_order(
    seed: int, run_program: RunProgram, tmp_path: Path, reference: dict[str, str]
) -> None:
    assert run_program(tmp_path, seed=seed) == reference


def test_digest_does_not_depend_on_folder_or_file_name(
    run_program: RunProgram, tmp_path: Path, reference: dict[str, str]
) -> None:
    assert run_program(tmp_path / "elsewhere", name="other.py", seed=3) == reference


def test_blank_lines_and_comments_change_nothing(
    run_program: RunProgram, tmp_path: Path, reference: dict[str, str]
) -> None:
    moved = "\n\n# a comment\n" + PROGRAM.replace("\nclass ", "\n\n# another\nclass ").replace(
        "            number = 60\n", "\n            number = 60  # here too\n"
    )
    assert run_program(tmp_path, moved, seed=4) == reference


def test_a_number_equal_to_a_line_number_changes_nothing(run_program: RunProgram, tmp_path: Path) -> None:
    """From Python 3.13 on a class body holds its own line, which shares its constant with equal numbers."""
    local_class = """
import json
def make():
    class Local:
        first = 60
        def method(self): self.b, self.a = 1, 2
    return Local
SUBJECTS = {"local": make}
"""
    line = local_class.splitlines().index("    class Local:") + 1
    moved = "\n" * (60 - line) + local_class
    assert run_program(tmp_path, local_class) == run_program(tmp_path, moved, seed=5)


@pytest.mark.parametrize(
    ("old", "new", "subject"),
    [
        ("x * factor", "x + factor", "function"),
        ('"three"}', '"four"}', "function"),
        ("factor=3", "factor=4", "function"),
        ('"r"})', '"s"})', "function"),
        ("x * factor", "x + factor", "decorated"),
        ("x * factor", "x + factor", "partial"),
        ("LIMIT = 10", "LIMIT = 11", "partial"),
        ("LIMIT = 10", "LIMIT = 11", "globals"),
        ('"delta"}', '"epsilon"}', "globals"),
        ('"delta"}', '"epsilon"}', "closure"),
        ('"delta"}', '"epsilon"}', "instance"),
        ('"delta"}', '"epsilon"}', "ordered"),
        ("LIMIT = 10", "LIMIT = 11", "generator"),
        ("n != 0 and", "n > 0 and", "cycle"),
        ("n < 2", "n < 3", "cached"),
        ("maxsize=5", "maxsize=6", "cached"),
        ("self.x / 2", "self.x / 3", "class"),
        ("kind = 12", "kind = 13", "class"),
        ("x: int = 1", "x: int = 2", "class"),
        ("RED = 1", "RED = 5", "classes"),
        ("WRITE = 2", "WRITE = 4", "classes"),
        ('"left", "right"', '"left", "wrong"', "classes"),
        ("x * factor", "x + factor", "classes"),
        ("number = 60", "number = 61", "local class"),
        ("a+b", "a+c", "method"),
        ("Fraction(1, 3)", "Fraction(2, 3)", "method"),
        ("asyncio.sleep(0)", "asyncio.sleep(1)", "coroutine"),
        ("n != 0 and", "n > 0 and", "tuple"),
    ],
)
def test_a_change_anywhere_in_reach_changes_the_digest(old: str, new: str, subject: str) -> None:
    assert old in PROGRAM
    assert digests(PROGRAM.replace(old, new))[subject] != digests(PROGRAM)[subject]


def test_a_change_out_of_reach_changes_nothing() -> None:
    before, after = digests(PROGRAM), digests(PROGRAM.replace("n < 2", "n < 3"))
    assert {name for name in after if after[name] != before[name]} == {"cached"}


def test_digest_of_rebuilt_code_is_that_of_the_original() -> None:
    for name, subject in subjects(PROGRAM).items():
        assert code_digest(pickle.loads(dump(subject).body)) == code_digest(subject), name


@pytest.mark.parametrize("minor", ["3.11", "3.12", "3.13"])
def test_digest_is_stable_in_every_python_version(minor: str, run_program: RunProgram, tmp_path: Path) -> None:
    python = find_pythons().get(minor)
    if python is None:
        pytest.skip(f"no Python {minor}")
    first = run_program(tmp_path, seed=1, python=python)
    assert run_program(tmp_path / "b", "\n# moved\n" + PROGRAM, seed=2, python=python) == first


@pytest.fixture
def module_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Import a module of the given text, anew each time."""
    monkeypatch.syspath_prepend(tmp_path)

    def build(text: str) -> ModuleType:
        (tmp_path / "importable_code.py").write_text(text)
        sys.modules.pop("importable_code", None)
        return __import__("importable_code")

    yield build
    sys.modules.pop("importable_code", None)


def test_importable_code_counts_by_name_and_source(module_of: Callable[[str], ModuleType]) -> None:
    first = code_digest(module_of("VALUE = 1\ndef work(): return VALUE\n").work)
    assert code_digest(module_of("VALUE = 1\ndef work(): return VALUE\n").work) == first
    changed = module_of("VALUE = 1234\ndef work(): return VALUE\n")
    assert not travels_by_value(changed.work)
    assert code_digest(changed.work) != first


def test_a_task_counts_as_its_function() -> None:
    def work() -> int:
        return 1

    class Task:
        def __envq_code__(self) -> Callable[[], int]:
            return work

    assert code_digest(Task()) == code_digest(work)


def test_a_task_that_calls_itself_has_a_digest() -> None:
    class Task:
        def __init__(self, function: Callable[[int], int]) -> None:
            self.function = function

        def __envq_code__(self) -> Callable[[int], int]:
            return self.function

        def __call__(self, n: int) -> int:
            return self.function(n)

    task: Any = Task(lambda n: task(n - 1) if n else 0)
    assert code_digest(task) == code_digest(task.function)


def test_sharing_of_equal_values_does_not_count() -> None:
    shared = [1, 2]
    assert code_digest((shared, shared)) == code_digest(([1, 2], [1, 2]))


def test_all_of_a_long_cycle_counts() -> None:
    def ring(last: int) -> list[Any]:
        start: list[Any] = [0]
        end = start
        for number in range(1, 20):
            end.append([number if number < 19 else last])
            end = end[1]
        end.append(start)
        return start

    assert code_digest(ring(19)) == code_digest(ring(19))
    assert code_digest(ring(19)) != code_digest(ring(20))


def test_types_of_equal_numbers_count() -> None:
    assert len({code_digest(value) for value in (1, True, 1.0, 1 + 0j, "1", b"1")}) == 6


def test_what_cannot_be_taken_apart_is_refused() -> None:
    with pytest.raises(PayloadError, match="lock"):
        code_digest((threading.Lock(),))


def test_digest_of_an_ordinary_function_takes_less_than_a_millisecond() -> None:
    table = {"a": 1}

    def work(x: int = 3) -> object:
        return table, json.dumps(x)

    code_digest(work)
    began = time.perf_counter()
    for _ in range(20):
        code_digest(work)
    assert (time.perf_counter() - began) / 20 < 0.001
