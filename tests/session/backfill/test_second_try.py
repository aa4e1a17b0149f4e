"""What a reservation held back is tried again when evictions have made it needless, extras included."""

from __future__ import annotations

from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.session.running import runs


def held_back() -> Given:
    """Room of n1 is held for the owner's large gang until reclaim gives it n0; an elastic one wants it."""
    c = Given().node("n0", gpus=4).node("n1", gpus=4)
    c.queue("owner", limits={"deserved": {entities.GPU: 8}})
    c.queue("guest", limits={"deserved": {entities.GPU: 0}})
    hour = {"preemptible": False, "expected_duration_ns": 3600 * 10**9}
    runs(c, "own", "n1 n1", queue="owner", since=c.now - 3500, group=hour)
    runs(c, "lent", "n0 n0 n0 n0", queue="guest", since=c.now - 1000)
    c.gang("large", pods=1, gpus=4, queue="owner", created=entities.BORN)
    c.group("small", queue="guest", min_member=1, created=entities.BORN + 1)
    return c.pods("small", 2, group="small", gpus=1)


def test_a_gang_that_starts_in_the_second_try_grows_in_it():
    """All of its members start in one session, not the minimum in one and the rest in the next."""
    c = held_back()
    c.when.one_session()
    assert c.then.evicted() == ["lent-0", "lent-1", "lent-2", "lent-3"]
    assert sorted(c.then.nodes()) == ["small-0", "small-1"]
