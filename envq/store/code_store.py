"""Code blobs in Redis, by digest, and how long each lives."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, cast

import redis
from redis import Redis, ResponseError

from envq.code.payload import Blob
from envq.code.signing import Keyring, job_keys
from envq.errors import CodeMissing, PayloadError
from envq.store.keys import Keys
from envq.store.scripts import renew_code

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 1.0
# On workers: a failover must fail neither a build nor a job, and a build that waits has to end some time.
WORKER_WAIT_S: Final = 60.0
DAY_S: Final = 24 * 3600
# As long as RQ keeps a failed job that may be requeued, and a month for one that waits in a queue.
CODE_TTL_S: Final = 395 * DAY_S


class CodeStore:
    """
    Blobs are written once per digest and renewed by whatever may need them later.

    Args:
        signing: the keys that sign what is written and verify what is read
        wait_s: how long reading one waits for a server that is away, besides what the connection does itself
    """

    def __init__(
        self, connection: Redis, keys: Keys, signing: Callable[[], Keyring] = job_keys, *, wait_s: float = 0
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._wait_s = wait_s
        self._signing = signing
        self._signed: set[str] = set()  # digests whose blob there is ours

    def get(self, digest: str, what: str) -> Blob:
        """The blob; raises CodeMissing naming ``what``, PayloadError where it is none, or not signed as it must be."""
        try:
            data = self._read(self._keys.code(digest))
        except ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise
            raise PayloadError(f"what is stored as the code of {what} (digest {digest[:12]}) is no code") from None
        if data is None:
            raise CodeMissing(
                f"the code of {what} (digest {digest[:12]}) is not in Redis any more; "
                "enqueue or declare it again from a driver that has it"
            )
        blob = Blob.unpack(data)
        blob.check(self._signing(), self._keys.namespace, digest)
        return blob

    def _read(self, key: str) -> bytes | None:
        give_up_at, pause_s = time.monotonic() + self._wait_s, FIRST_PAUSE_S
        while True:
            try:
                return cast(bytes | None, cast(Any, self._connection).get(key))
            except (redis.ConnectionError, redis.TimeoutError):
                if time.monotonic() + pause_s > give_up_at:
                    raise
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def ensure(self, blob: Blob, *, for_s: int = 0) -> None:
        """
        Have the blob there for what is enqueued now, or in ``for_s`` seconds; renews what is there.

        A negative ``for_s`` keeps it for ever.
        """
        ttl_s = -1 if for_s < 0 else CODE_TTL_S + for_s
        # One that lies there may be from a time, or a process, without a key.
        fits = not self._signing() or blob.header.digest in self._signed
        if not (fits and renew_code(self._connection, self._keys, blob.header.digest, ttl_s)):
            ex = None if ttl_s < 0 else ttl_s
            self._connection.set(self._keys.code(blob.header.digest), self.packed(blob), ex=ex)
            self._signed.add(blob.header.digest)

    def packed(self, blob: Blob) -> bytes:
        """What is to be stored."""
        return blob.signed(self._signing(), self._keys.namespace).pack()

    def renew(self, digest: str, *, for_s: int = 0) -> bool:
        """Renew a blob that a kept failure or a scheduled retry may need; False where it is missing."""
        return renew_code(self._connection, self._keys, digest, -1 if for_s < 0 else CODE_TTL_S + for_s)

    def keep(self, blob: Blob) -> None:
        """Have the blob there without an end, as declarations need it."""
        self._connection.set(self._keys.code(blob.header.digest), self.packed(blob), nx=not self._signing())
        self._connection.persist(self._keys.code(blob.header.digest))
