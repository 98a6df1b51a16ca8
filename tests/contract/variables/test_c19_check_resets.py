"""C19: `--check-resets` names the value that a reset left dirty, and the job."""

from __future__ import annotations

from collections.abc import Callable

from support.deployment import Deployment
from support.jobs import enqueue, run

import envq
from envq.driver.client import Client
from envq.environment import env

WORKER = ("--check-resets",)


def test_what_differs_from_the_fresh_value_is_reported_with_its_job(
    deployment: Deployment, client: Client, declare: Callable[..., None]
) -> None:
    declare("dirty", dict, lambda value: value)
    declare("clean", dict, lambda value: {})

    def change() -> None:
        env.dirty["left"] = "behind"
        env.clean["left"] = "behind"

    def look() -> int:
        return len(env.dirty) + len(env.clean)

    guilty = enqueue(change)
    envq.get(guilty, timeout=30)
    assert [run(look) for _ in range(2)] == [1, 1]
    reports = [line for line in deployment.worker.output.splitlines() if "is not as it was built" in line]
    assert len(reports) == 1
    assert "WARNING" in reports[0]
    assert "'dirty'" in reports[0]
    assert guilty.id in reports[0]
