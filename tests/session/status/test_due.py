"""When a session may decide otherwise though nothing has changed."""

from __future__ import annotations

from gpusched.api.gang.pod_group import SubGroup, TopologyRequest
from gpusched.session.status.next_wakeup import next_wakeup
from gpusched.testing.entities import NOW
from gpusched.testing.given import Given


def wish(seconds: int) -> TopologyRequest:
    return TopologyRequest(preferred="rack", max_wait_ns=seconds * 10**9)


def test_the_first_patience_that_ends_is_told(given: Given) -> None:
    """Those that ended already, and gangs without any, do not count; those of sub-groups do."""
    c = given.nodes(1, gpus=8)
    c.gang("never", pods=9, gpus=8)
    c.gang("over", pods=9, gpus=8, topology=wish(5), created=NOW - 10)
    assert next_wakeup(c.cache.take_snapshot(NOW)) is None
    c.gang("late", pods=9, gpus=8, topology=wish(90), created=NOW - 10)
    assert next_wakeup(c.cache.take_snapshot(NOW)) == NOW + 80
    c.group("parts", min_member=1, created=NOW, sub_groups=(SubGroup("a", 1, wish(7)),))
    c.pods("parts-a", 1, group="parts", sub_group="a", gpus=8)
    assert next_wakeup(c.cache.take_snapshot(NOW)) == NOW + 7
