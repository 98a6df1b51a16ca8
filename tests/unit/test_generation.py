"""When a store is taken to have forgotten what it knew."""

from __future__ import annotations

import pytest

from envq.store.generation import turned_back


@pytest.mark.parametrize(
    ("known", "now"),
    [
        ("3:aa:1f", ""),
        ("3:aa:1f", "1:bb:2e"),
        ("3:aa:1f", "7:bb:2e"),
        ("3:aa:1f", "2:bb:1f"),
        ("3:aa:1f", "3:bb:1f"),
        ("3:aa", ""),
    ],
)
def test_a_store_that_is_empty_another_or_older_has_forgotten(known: str, now: str) -> None:
    assert turned_back(known, now)


@pytest.mark.parametrize(
    ("known", "now"),
    [
        ("", ""),
        ("", "3:aa:1f"),
        ("3:aa:1f", "3:aa:1f"),
        ("3:aa:1f", "4:bb:1f"),
        ("3:aa:1f", "garbage"),
        ("x", "3:aa:1f"),
    ],
)
def test_a_store_that_went_on_has_not(known: str, now: str) -> None:
    assert not turned_back(known, now)
