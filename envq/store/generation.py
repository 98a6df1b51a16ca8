"""The generation of the declarations: ``counter:token:life``, where only a store that was emptied has another life."""

from __future__ import annotations

import re
from typing import Final

_PARTS: Final = re.compile(r"(\d+):[0-9a-f]+(?::([0-9a-f]+))?")


def turned_back(known: str, now: str) -> bool:
    """
    Whether a store has forgotten what it knew: it was emptied, restored from an older copy, or is another one.

    Args:
        known: the generation that was seen there, "" for none
        now: the one that is there, "" for none
    """
    if not known or known == now:
        return False
    before, after = _PARTS.fullmatch(known), _PARTS.fullmatch(now)
    if before is None or after is None:
        return not now  # of what nobody can read nothing is known; the next declaration replaces it
    return before[2] != after[2] or int(after[1]) <= int(before[1])
