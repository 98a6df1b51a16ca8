"""Declares new versions of a variable and waits until so many executors hold each; prints one line of JSON.

python -m peers.declare EXECUTORS TIMES
"""

from __future__ import annotations

import json
import sys
import time

import envq
from peers.common import URL
from peers.peer_envq import identity, make

TIMEOUT_S = 60.0


def main() -> None:
    executors, times = int(sys.argv[1]), int(sys.argv[2])
    envq.connect(URL)
    seconds: list[float] = []
    for version in range(1, times + 1):
        variable = envq.EnvironmentVariable(make, identity, version=version, driver="never")
        begin = time.monotonic()
        envq.env.subject = variable
        envq.wait_ready("subject", workers=executors, timeout=TIMEOUT_S)
        seconds.append(time.monotonic() - begin)
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
