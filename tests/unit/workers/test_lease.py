"""The lease keeps its promise whatever its length."""

from __future__ import annotations

import pytest

from envq.workers.lease import LONGEST_LEASE_S, SHORTEST_LEASE_S, Lease

LATEST_LOOK = 1.2  # judges do not all look at the same moment


@pytest.mark.parametrize("seconds", [SHORTEST_LEASE_S, 5.0, 30.0, 300.0, LONGEST_LEASE_S])
def test_all_that_leads_to_a_settlement_fits_into_the_lease(seconds: float) -> None:
    lease = Lease(seconds)
    assert lease.silence_s + lease.look_s * LATEST_LOOK <= 0.8 * seconds


@pytest.mark.parametrize("seconds", [SHORTEST_LEASE_S, 5.0, 30.0, 300.0, LONGEST_LEASE_S])
def test_a_living_worker_is_not_taken_for_dead_for_signs_that_got_lost(seconds: float) -> None:
    lease = Lease(seconds)
    assert 4 * lease.beat_s < lease.silence_s
    assert lease.trust_s < lease.silence_s
    assert 2 * lease.beat_s < lease.gap_s
    assert lease.beat_s + lease.at_most(3.0) + lease.at_most(5.0) < lease.silence_s, "also after an outage of Redis"
