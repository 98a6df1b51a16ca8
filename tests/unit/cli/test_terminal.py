"""Workers' lines above an open prompt."""

from __future__ import annotations

from envq.cli.terminal import above


def test_a_line_takes_the_place_of_the_prompt_which_is_drawn_again_below() -> None:
    assert above("[1 step] hi", ">>> x = ", 80) == "\r\x1b[J[1 step] hi\n>>> x = "


def test_input_that_is_wrapped_is_cleared_over_all_its_rows() -> None:
    assert above("hi", ">>> " + "x" * 80, 40).startswith("\r\x1b[A\x1b[A\x1b[J")
