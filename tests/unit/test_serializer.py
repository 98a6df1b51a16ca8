"""The serializer: plain pickle for plain values, by value for what only this process knows."""

from __future__ import annotations

import datetime
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

import envq.code.digest
from envq.code.serializer import Serializer
from envq.errors import PayloadError

ROOT = Path(envq.code.digest.__file__).parents[2]


@pytest.mark.parametrize(
    "value",
    [None, 1, "text", b"__main__", {"a": [1, 2.5, {3}]}, datetime.date(2026, 1, 1), "the module __main__"],
)
def test_plain_values_are_plain_pickle(value: object) -> None:
    assert Serializer().dumps(value) == pickle.dumps(value, protocol=5)


def test_what_it_writes_it_reads() -> None:
    serializer = Serializer()
    assert serializer.loads(serializer.dumps({"a": (1, 2)})) == {"a": (1, 2)}


def test_a_lambda_in_a_value_goes_by_value() -> None:
    loaded: Any = Serializer.loads(Serializer().dumps({"f": lambda x: x + 1}))
    assert loaded["f"](1) == 2


def test_a_lock_in_a_value_is_named_with_its_place() -> None:
    with pytest.raises(PayloadError, match=r"\['pool'\]\[0\].*lock"):
        Serializer().dumps({"pool": [threading.Lock()]})


def test_a_result_that_changes_is_stored_as_it_was_returned() -> None:
    serializer, value = Serializer(), [1]
    data = serializer.result(value, "f")
    value.append(2)
    with serializer.standing_for(value, data):
        assert serializer.dumps(value) is data
        assert serializer.loads(serializer.dumps([1, 2])) == [1, 2]
    assert serializer.loads(serializer.dumps(value)) == [1, 2]


SCRIPT = textwrap.dedent("""
    import sys
    from envq.code.serializer import serializer
    class Point:
        def __init__(self, x): self.x = x
    sys.stdout.buffer.write(serializer.dumps([Point(3)]))
""")
READER = "import pickle, sys; print(pickle.load(sys.stdin.buffer)[0].x)"
REWRITER = textwrap.dedent("""
    import sys
    from envq.code.serializer import serializer
    sys.stdout.buffer.write(serializer.dumps(serializer.loads(sys.stdin.buffer.read())))
""")


def _python(code: str, stdin: bytes = b"") -> bytes:
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"]
    done = subprocess.run(command, input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_an_instance_of_a_main_class_is_readable_where_main_is_another() -> None:
    assert _python(READER, _python(SCRIPT)).split() == [b"3"]


def test_an_instance_of_a_rebuilt_class_can_be_sent_on() -> None:
    assert _python(READER, _python(REWRITER, _python(SCRIPT))).split() == [b"3"]


@pytest.mark.parametrize(
    ("result", "advice"),
    [((x for x in "ab"), "return a list"), ({"a": threading.Lock()}, "return plain data")],
)
def test_a_result_that_cannot_travel_is_named_by_its_function_with_advice_for_results(result: Any, advice: str) -> None:
    with pytest.raises(PayloadError, match=rf"^the result of count: .*; {advice}") as raised:
        Serializer().result(result, "count")
    assert "initializer" not in str(raised.value)
