"""Signatures of declarations, over their header as it stands in Redis, the namespace and the store it was made for."""

from __future__ import annotations

import json
import secrets
from typing import Any, Final, cast

from redis import Redis

from envq.code.signing import Purpose, declaration_keys
from envq.store.keys import Keys

_SIGNATURE: Final = "signature"


class Seal:
    """Signs and verifies for one namespace of one store; does nothing where there is no key."""

    def __init__(self, connection: Redis, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys

    def sign(self, header: str) -> str:
        """The header with its signature in it; makes the store's id where there is none."""
        keys = declaration_keys()
        if not keys:
            return header
        fields = cast("dict[str, Any]", json.loads(header))
        fields[_SIGNATURE] = keys.sign(Purpose.DECLARATION, self._covered(self._store_id(), fields))
        return _text(fields)

    def holds(self, header: str | bytes, store_id: str | None = None) -> bool:
        """Whether it may be used: always, without a key. ValueError for what is no header."""
        keys = declaration_keys()
        if not keys:
            return True
        fields: Any = json.loads(header)
        if not isinstance(fields, dict):
            return False
        fields = cast("dict[str, Any]", fields)
        store_id = self._stored_id() if store_id is None else store_id
        return keys.verify(Purpose.DECLARATION, self._covered(store_id, fields), str(fields.get(_SIGNATURE, "")))

    def _covered(self, store_id: str, fields: dict[str, Any]) -> tuple[str, ...]:
        return self._keys.namespace, store_id, _text({k: v for k, v in fields.items() if k != _SIGNATURE})

    def _store_id(self) -> str:
        self._connection.set(self._keys.store_id, secrets.token_hex(16), nx=True)
        return self._stored_id()

    def _stored_id(self) -> str:
        return (cast(bytes | None, self._connection.get(self._keys.store_id)) or b"").decode(errors="replace")


def _text(fields: dict[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"), sort_keys=True)
