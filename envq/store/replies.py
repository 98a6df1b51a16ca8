"""How errors of a server are read: what means that another server, or a later try, is needed is a lost connection."""

from __future__ import annotations

import re
from typing import Any, Final, cast

import redis
from redis.connection import DefaultParser

# Redis 6.2 puts what a command of a script was refused with behind what it says of the script.
_IN_A_SCRIPT: Final = re.compile(r"^(?:ERR )?Error running script .*?: -([A-Z]+ .*)$", re.DOTALL)


# Without hiredis, redis-py would take another parser than its default one for the newer protocol.
PROTOCOL: Final[dict[str, int]] = {} if "Hiredis" in DefaultParser.__name__ else {"protocol": 2}


class NotPrimary(redis.ConnectionError):
    """The server is a replica, now or for ever: whoever asks again must look for the primary anew."""


class ServerBusy(redis.ConnectionError):
    """The server runs a script that takes long, and answers nothing else."""


# These refuse: a transaction that they meet is not committed.
NOTHING_DONE: Final = (NotPrimary, ServerBusy, redis.BusyLoadingError)


class Parser(cast(Any, DefaultParser)):
    """
    redis-py's, but these close the connection, and are tried again on a new one as any lost connection is.

    So whoever was connected to a primary that has become a replica finds the new one, if the URL leads there.
    """

    EXCEPTION_CLASSES: Final = {
        **cast(Any, DefaultParser).EXCEPTION_CLASSES,
        "READONLY": NotPrimary,
        "MASTERDOWN": NotPrimary,
        "UNBLOCKED": NotPrimary,
        "BUSY": ServerBusy,
    }

    @classmethod
    def parse_error(cls, response: str) -> Exception:
        """From the text of an error to what is raised."""
        refused = _IN_A_SCRIPT.match(response)
        return cast(Exception, super().parse_error(refused[1] if refused else response))
