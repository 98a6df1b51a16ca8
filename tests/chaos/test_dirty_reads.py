"""No job sees what another left behind; and the same script sees it at once where the reset is switched off."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

JOBS = 10_000

DRIVER = """
    import json, os, sys, time
    import envq

    kind, jobs = sys.argv[1], int(sys.argv[2])

    def make():
        return {"items": [1, 2, 3], "owner": None}

    def put_back(value):
        value.clear()
        value.update(make())
        return value

    reset = {"default": None, "custom": put_back, "off": lambda value: value}[kind]
    envq.env.value = envq.EnvironmentVariable(make, reset)

    @envq.task(timeout=0.25, result_ttl=600)
    def spoil(number):
        value = envq.env.value
        clean = value == {"items": [1, 2, 3], "owner": None}
        value["items"].append(number)
        value["owner"] = number
        if not clean:
            return "dirty"
        if number % 3 == 0:
            raise ValueError("on purpose")
        if number % 200 == 1:
            value["spoilt"] = True
            while True:
                time.sleep(0.01)
        return os.getpid()

    results = envq.get(spoil.map(range(jobs)), timeout=500, return_exceptions=True)
    kinds = [type(each).__name__ for each in results]
    print(json.dumps({
        "dirty": results.count("dirty"),
        "raised": sum("on purpose" in str(each) for each in results),
        "timed_out": sum("JobTimedOut" in str(each) for each in results),
        "clean": kinds.count("int"),
        "executors": len({each for each in results if isinstance(each, int)}),
    }))
"""


def run(worker: Any, run_script: Any, kind: str, jobs: int) -> dict[str, int]:
    worker("-w", "2", "--log-level", "CRITICAL", executors=2)
    done = run_script(DRIVER, kind, str(jobs), timeout=550)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", ["custom", "default"])
def test_no_read_is_dirty_however_the_jobs_before_ended(
    worker: Any, run_script: Any, scaled: Callable[[int], int], kind: str
) -> None:
    jobs = scaled(JOBS)
    counted = run(worker, run_script, kind, jobs)
    assert counted["dirty"] == 0
    assert counted["executors"] == 2
    assert counted["raised"] == (jobs + 2) // 3
    assert counted["timed_out"] > 0
    assert counted["clean"] + counted["raised"] + counted["timed_out"] == jobs


def test_the_same_script_reports_dirty_reads_where_the_reset_is_off(worker: Any, run_script: Any) -> None:
    assert run(worker, run_script, "off", 60)["dirty"] > 30
