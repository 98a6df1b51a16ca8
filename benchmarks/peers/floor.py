"""How fast one Python process and one Redis can go at all on this machine, with nine simple commands for a job.

python -m peers.floor PORT LOOP JOBS; run with the interpreter of the peer "floor", prints one line of JSON.
"""

from __future__ import annotations

import json
import socket
import sys
import time

import hiredis
import redis

BODY = b"x" * 200  # one job, about what the peers store
BATCH = 64


def fill(client, n):
    client.flushall()
    for start in range(0, n, 1000):
        client.lpush("q", *[BODY + b"%d" % i for i in range(start, min(n, start + 1000))])


def finish(i):
    """Eight commands that a careful queue would send when a job ends."""
    key = b"job:%d" % i
    return [
        (b"HSET", key, b"status", b"finished", b"ended", b"1700000000.123"),
        (b"SET", b"result:%d" % i, b"42", b"EX", b"600"),
        (b"EXPIRE", key, b"600"),
        (b"LREM", b"busy", b"1", BODY),
        (b"ZREM", b"started", key),
        (b"ZADD", b"finished", b"%d" % i, key),
        (b"HINCRBY", b"stats", b"done", b"1"),
        (b"PUBLISH", b"done", key),
    ]


class Raw:
    """The wire without redis-py: hiredis both ways."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = hiredis.Reader()

    def __call__(self, commands):
        self.socket.sendall(b"".join([hiredis.pack_command(each) for each in commands]))
        got = 0
        while got < len(commands):
            if self.reader.gets() is False:
                self.reader.feed(self.socket.recv(65536))
            else:
                got += 1


class Pipelined:
    """The same commands through redis-py's pipeline."""

    def __init__(self, port):
        self.client = redis.Redis(port=port)

    def __call__(self, commands):
        pipeline = self.client.pipeline(transaction=False)
        for each in commands:
            pipeline.execute_command(*each)
        pipeline.execute()


def batched(send, n):
    """64 jobs in two round trips."""
    for start in range(0, n, BATCH):
        send([(b"LMOVE", b"q", b"busy", b"RIGHT", b"LEFT")] * BATCH)
        ends = [command for i in range(start, start + BATCH) for command in finish(i)]
        send([*ends, (b"LTRIM", b"busy", b"0", b"63")])


def single(send, n):
    """Two round trips for each job."""
    for i in range(n):
        send([(b"BLMOVE", b"q", b"busy", b"RIGHT", b"LEFT", b"1")])
        send(finish(i))
        if i % BATCH == 0:
            send([(b"LTRIM", b"busy", b"0", b"63")])


LOOPS = {
    "raw-batched": (Raw, batched),
    "raw-single": (Raw, single),
    "redis-py-batched": (Pipelined, batched),
    "redis-py-single": (Pipelined, single),
}


def main():
    port, name, n = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]) // BATCH * BATCH
    fill(redis.Redis(port=port), n)
    sender, loop = LOOPS[name]
    send = sender(port)
    begin = time.perf_counter()
    loop(send, n)
    print(json.dumps({"rate": n / (time.perf_counter() - begin), "jobs": n}))


if __name__ == "__main__":
    main()
