"""A start lasts also when a claim that is made after it lets another gang evict it."""

from __future__ import annotations

from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.session.running import runs


def test_nobody_starts_whom_room_of_a_later_claim_has_evicted():
    """``high`` finds too few victims, until a claim of another queue frees more than it takes."""
    c = Given().node("n0", gpus=2).node("n1", gpus=2)
    c.queue("owner", limits={"deserved": {entities.GPU: 2}})
    for name in ("guest", "other"):
        c.queue(name, limits={"deserved": {entities.GPU: 0}})
    runs(c, "old", "n0 n1 n1", min_member=3, queue="other")
    c.gang("low", pods=1, gpus=1, queue="guest")
    c.gang("high", pods=2, gpus=1, queue="guest", priority=9)
    c.gang("due", pods=2, gpus=1, queue="owner")
    c.when.carried_out()
    started = c.then.started()
    c.now += 1.0
    c.when.carried_out()
    assert (started, c.then.evicted()) == ([], [])
