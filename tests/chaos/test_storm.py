"""The short form of the chaos run: a few hundred jobs of all kinds, everything that can happen, one restart."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.storm.plan import make_plan
from chaos.storm.run import run

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

JOBS = 320
LEASE_S = 3.0
JOBS_A_ROUND = 16
SEEDS = (1, 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_after_a_storm_every_job_has_ended_as_it_should(seed: int, server_binary: Path, tmp_path: Path) -> None:
    plan = make_plan(seed, JOBS, restarts=1, ghosts=1, jobs_a_round=JOBS_A_ROUND)
    outcome = run(plan, server_binary, tmp_path, lease_s=LEASE_S, tell=True)
    print(outcome.figures)
    assert outcome.faults == []


def test_the_same_seed_makes_the_same_plan() -> None:
    assert make_plan(7, 1000) == make_plan(7, 1000)
    assert make_plan(7, 1000) != make_plan(8, 1000)
