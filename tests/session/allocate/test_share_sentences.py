"""Pods that ask for memory of a GPU and find none: the sentence names it, and only true causes."""

from __future__ import annotations

from gpusched.api.devices.gpu_share import GpuShare
from gpusched.testing.given import Given

GIB = 2**30


def test_memory_that_no_gpu_has_is_named(given: Given) -> None:
    """100 GiB of 80 GiB: no other cause is made up, and it is not told as a whole GPU."""
    c = given.nodes(2, gpus=4, labels={"nvidia.com/gpu.memory": "81920"})
    c.pod("big", cpu=0, memory=0, share=GpuShare(memory=100 * GIB))
    assert c.when.one_session().binds == ()
    assert c.then.why("big") == (
        "needs 1 pod with 100Gi of the memory of one GPU; none fit now; "
        "of 2 nodes: 2 do not tell of GPUs with so much memory"
    )


def test_shares_that_are_taken_are_the_only_cause(given: Given) -> None:
    """All GPUs are in use by whole pods."""
    c = given.nodes(1, gpus=1, labels={"nvidia.com/gpu.memory": "81920"})
    c.pod("old", gpus=1, node="node-0", slots=1, plan="p")
    c.pod("new", cpu=1000, memory=0, share=GpuShare(memory=40 * GIB))
    assert c.when.one_session().binds == ()
    assert c.then.why("new") == (
        "needs 1 pod with 40Gi of the memory of one GPU, 1 cpu; none fit now; "
        "of 1 node: 1 has no GPU with room for its share; default/old holds 1 nvidia.com/gpu"
    )
