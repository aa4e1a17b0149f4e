"""The burst cap, on a cluster in memory."""

from __future__ import annotations

from acme_policies.burstcap import BurstCap, BurstCapArgs

from gpusched.testing.authors import cluster_under, repeats


def test_a_queue_may_use_its_cap_and_not_more():
    """48 GPUs start, one more waits and is told why; another queue has its own cap."""
    cap = BurstCap(args=BurstCapArgs(max_gpus=48))
    c = cluster_under(cap).nodes(8, gpus=8).queue("a").queue("b")
    c.gang("large", pods=6, gpus=8, queue="a", created=1.0)
    c.gang("one-more", pods=1, gpus=1, queue="a", created=2.0)
    c.gang("other", pods=1, gpus=8, queue="b", created=3.0)
    c.when.bound()
    assert c.then.started() == ["large", "other"]
    assert c.then.reason("one-more") == "QuotaExceeded"
    assert c.then.why("one-more") == "needs 1 GPUs, the burst cap leaves 0"
    assert c.then.faults() == ()
    assert repeats(c)
