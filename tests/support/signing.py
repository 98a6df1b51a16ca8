"""Keys for a process and for the workers it starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from envq.code.signing import forget_keys

KEY = "a-key-of-the-tests-0123456789"
OTHER_KEY = "another-key-of-the-tests-0123"
DECLARATION_KEY = "a-key-for-declarations-0123456"


@contextmanager
def keys(variables: Mapping[str, str]) -> Iterator[None]:
    """Inside, this process has the keys in these variables, and no others."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ENVQ_SIGNING_KEY", "ENVQ_SIGNING_KEY_FILE", "ENVQ_DECLARATION_KEY", "ENVQ_DECLARATION_KEY_FILE"):
            patch.delenv(name, raising=False)
        for name, value in variables.items():
            patch.setenv(name, value)
        forget_keys()
        try:
            yield
        finally:
            patch.undo()
            forget_keys()
