"""Every error leaves as one line and a documented code."""

from __future__ import annotations

import pytest

from envq.cli import mistakes
from envq.errors import (
    ConfigurationError,
    EnvironmentVariableFailed,
    EnvqError,
    InvalidDeclaration,
    NotDeclared,
    PayloadTooLarge,
    ServerUnavailable,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotDeclared("no such name"), 2),
        (ServerUnavailable("no server"), 3),
        (ConfigurationError("bad flag"), 4),
        (InvalidDeclaration("bad name"), 4),
        (PayloadTooLarge("too big"), 4),
        (EnvironmentVariableFailed("no build"), 5),
        (EnvqError("something else"), 1),
        (ZeroDivisionError("division by zero"), 1),
    ],
)
def test_each_error_has_its_code_and_one_line(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert mistakes.report(error, debug=False) == code
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith("envq: ")
    assert written.err.count("\n") == 1
    assert str(error) in written.err


def test_a_message_of_several_lines_becomes_one(capsys: pytest.CaptureFixture[str]) -> None:
    mistakes.report(ConfigurationError("first\n  second"), debug=False)
    assert capsys.readouterr().err == "envq: first second\n"


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("deep inside")
    except ValueError as error:
        mistakes.report(error, debug=True)
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (BrokenPipeError(), 141)])
def test_ctrl_c_and_a_closed_pipe_say_nothing(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mistakes.report(error, debug=True) == code
    assert capsys.readouterr().err == ""
