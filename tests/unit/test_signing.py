"""Signatures: what is signed in one sense is valid in no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envq.code.signing import Keyring, Purpose, prefix, sign_rest
from envq.errors import ConfigurationError
from envq.settings import signing_keys

KEYS = Keyring((b"first-key-first-key", b"second-key-second-key"))
PARTS = st.lists(st.one_of(st.binary(max_size=8), st.text(max_size=8), st.integers()), max_size=5)


@given(PARTS, PARTS)
def test_no_two_lists_of_parts_are_signed_alike(one: list[object], other: list[object]) -> None:
    def stored(parts: list[object]) -> list[bytes]:
        return [part if isinstance(part, bytes) else str(part).encode() for part in parts]

    assert (KEYS.sign(Purpose.JOB, one) == KEYS.sign(Purpose.JOB, other)) == (stored(one) == stored(other))


@given(PARTS)
def test_a_signature_is_good_for_one_purpose_and_verified_by_each_key(parts: list[object]) -> None:
    signature = KEYS.sign(Purpose.JOB, parts)
    assert KEYS.verify(Purpose.JOB, parts, signature)
    assert Keyring(KEYS.keys[::-1]).verify(Purpose.JOB, parts, signature.encode())
    assert not Keyring(KEYS.keys[1:]).verify(Purpose.JOB, parts, signature)
    assert not KEYS.verify(Purpose.META, parts, signature)


def test_a_message_in_two_steps_is_the_same_message() -> None:
    beginning = prefix(Purpose.JOB, ("queue", 5))
    assert sign_rest(KEYS, beginning, b"id", b"call") == KEYS.sign(Purpose.JOB, ("queue", 5, "id", b"call"))


def test_a_signature_that_is_no_text_at_all_does_not_fit() -> None:
    assert not KEYS.verify(Purpose.JOB, (), b"\xff\x00")
    assert not KEYS.verify(Purpose.JOB, (), "ü")


def test_keys_are_not_shown() -> None:
    assert "first-key" not in repr(KEYS)


def test_several_keys_are_read_in_order_from_a_variable_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("first-key-first-key,\n  second-key-second-key\n")
    assert signing_keys("KEY", {"KEY_FILE": str(file)}) == KEYS.keys
    assert signing_keys("KEY", {"KEY": "first-key-first-key second-key-second-key"}) == KEYS.keys
    assert signing_keys("KEY", {}) == ()


@pytest.mark.parametrize("content, said", [("", "is empty"), ("short", "is shorter than 16"), (None, "cannot be read")])
def test_a_file_without_a_key_is_refused(tmp_path: Path, content: str | None, said: str) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigurationError, match=said):
        signing_keys("KEY", {"KEY_FILE": str(file)})
