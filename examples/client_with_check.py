"""A connection that is kept open between jobs, checked before a job gets it, and rolled back after each.

Start a worker, then this:

    envq worker default
    python examples/client_with_check.py
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator

import envq


def connect() -> Iterator[sqlite3.Connection]:
    """Stands for any database. What follows the yield is its teardown."""
    database = sqlite3.connect(":memory:")
    database.execute("create table orders (item text)")
    database.commit()
    yield database
    database.close()


def roll_back(database: sqlite3.Connection) -> sqlite3.Connection:
    """Nothing a job has not committed is there for the next one."""
    database.rollback()
    return database


def answers(database: sqlite3.Connection) -> bool:
    """Asked at the first read of a job; raises where the connection is broken, which counts as no."""
    return database.execute("select 1").fetchone() == (1,)


envq.env.database = envq.EnvironmentVariable(connect, roll_back, check=answers, driver="never")


@envq.task
def order(item: str) -> tuple[int, int]:
    """How many orders this job sees, and in which process."""
    envq.env.database.execute("insert into orders values (?)", [item])
    return envq.env.database.execute("select count(*) from orders").fetchone()[0], os.getpid()


@envq.task
def break_it() -> None:
    """Leaves a connection that is of no use to anybody."""
    envq.env.database.close()


def main() -> None:
    before = [envq.get(order.enqueue(item), timeout=20) for item in ("tea", "milk")]
    envq.get(break_it.enqueue(), timeout=20)
    after = envq.get(order.enqueue("sugar"), timeout=20)
    print("orders seen:", [seen for seen, _ in [*before, after]])
    print("processes:", len({process for _, process in [*before, after]}))


if __name__ == "__main__":
    main()
