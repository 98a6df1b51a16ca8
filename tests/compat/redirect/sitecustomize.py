"""Python runs this at the start of every process of the suite: RQ's tests say port 6379, and mean a server of ours."""

import os

from redis.connection import Connection

PORT_IN_THE_TESTS = 6379
connect_as_told = Connection.__init__


def connect_to_ours(self, host="localhost", port=PORT_IN_THE_TESTS, *args, **kwargs):
    connect_as_told(
        self, host, os.environ["RQ_SUITE_PORT"] if int(port) == PORT_IN_THE_TESTS else port, *args, **kwargs
    )


Connection.__init__ = connect_to_ours
