"""What jobs print: whole lines, under a label, from any thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from envq.workers.execution.output import LONGEST_PARTIAL, JobLabel, LabelledStream, label_output


class Pipe:
    """A labelled stream and what came out of it."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self.label = "1 step 3f2a"
        self.stream = LabelledStream(self._writer, lambda: self.label)

    def text(self) -> str:
        os.set_blocking(self._reader, False)
        try:
            return os.read(self._reader, 1 << 16).decode()
        except BlockingIOError:
            return ""

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def test_each_completed_line_gets_the_label(pipe: Pipe) -> None:
    print("one\ntwo", file=pipe.stream)
    assert pipe.text() == "[1 step 3f2a] one\n[1 step 3f2a] two\n"


def test_a_partial_line_waits_for_its_end_also_when_flushed(pipe: Pipe) -> None:
    print("one", end="", file=pipe.stream, flush=True)
    assert pipe.text() == ""
    print(" line", file=pipe.stream)
    assert pipe.text() == "[1 step 3f2a] one line\n"


def test_the_end_of_a_job_sends_what_lacks_its_newline_under_the_jobs_label(pipe: Pipe) -> None:
    pipe.stream.write("rest")
    pipe.stream.end_lines()
    pipe.label = "1 next 77aa"
    pipe.stream.write("new\n")
    assert pipe.text() == "[1 step 3f2a] rest\n[1 next 77aa] new\n"


def test_threads_do_not_tear_each_others_lines(pipe: Pipe) -> None:
    halfway = threading.Barrier(2)

    def say(word: str) -> None:
        pipe.stream.write(word)
        halfway.wait(5)
        pipe.stream.write(word + "\n")

    threads = [threading.Thread(target=say, args=(word,)) for word in ("aa", "bb")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(pipe.text().splitlines()) == ["[1 step 3f2a] aaaa", "[1 step 3f2a] bbbb"]


def test_a_progress_bar_shows_its_last_state_only(pipe: Pipe) -> None:
    for percent in (1, 50, 100):
        pipe.stream.write(f"\r{percent} %")
    pipe.stream.write("\n")
    assert pipe.text() == "[1 step 3f2a] 100 %\n"


def test_an_endless_line_is_sent_before_it_fills_the_memory(pipe: Pipe) -> None:
    pipe.stream.write("x" * (LONGEST_PARTIAL + 1))
    assert len(pipe.text()) > LONGEST_PARTIAL


def test_bytes_are_labelled_too_and_broken_ones_replaced(pipe: Pipe) -> None:
    pipe.stream.buffer.write("ü".encode()[:1])
    pipe.stream.buffer.write("ü".encode()[1:] + b"\xff\n")
    assert pipe.text() == "[1 step 3f2a] ü\ufffd\n"


def test_what_cannot_be_encoded_is_replaced_and_raises_nothing(pipe: Pipe) -> None:
    pipe.stream.write("\ud800\n")
    assert pipe.text() == "[1 step 3f2a] ?\n"


def test_it_is_no_terminal_and_has_a_descriptor_for_child_processes(pipe: Pipe) -> None:
    assert not pipe.stream.isatty()
    subprocess.run(["echo", "from a child"], stdout=pipe.stream, check=True)  # type: ignore[call-overload]
    assert pipe.text() == "from a child\n"


def test_a_reader_that_is_gone_does_not_fail_the_job() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    LabelledStream(writer, lambda: "1").write("nobody reads this\n")
    os.close(writer)


def test_both_streams_of_the_process_are_labelled_until_restored() -> None:
    program = """
from envq.workers.execution.output import label_output
import sys
output = label_output(lambda: "1 step")
print("out"); print("err", file=sys.stderr); print("rest", end="")
output.end_of_job()
output.restore()
print("plain")
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[1 step] out\n[1 step] rest\nplain\n"
    assert done.stderr == "[1 step] err\n"


def test_restoring_gives_back_the_streams_of_before(capfd: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    output = label_output(lambda: "1")
    assert sys.stdout is not before[0]
    output.restore()
    assert (sys.stdout, sys.stderr) == before


def test_the_label_names_executor_function_and_job_while_a_job_runs() -> None:
    label = JobLabel(2)
    label.begin("app.tasks.step", "3f2a91c4-77aa-4e11")
    assert str(label) == "2 step 3f2a91c4"
    label.end()
    assert str(label) == "2"
