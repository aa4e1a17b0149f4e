"""Lone pods go to the node that they fill best: what counts is how full it is with them."""

from __future__ import annotations

from gpusched.api.devices.gpu_share import GpuShare
from gpusched.testing.entities import GIB
from gpusched.testing.given import Given


def test_four_gpus_go_to_the_node_of_four(given: Given) -> None:
    """Both are empty; the node of eight stays whole."""
    c = given.node("a8", gpus=8).node("b4", gpus=4).pod("p", gpus=4)
    c.when.bound()
    assert c.then.nodes() == {"p": "b4"}


def test_a_used_node_that_is_fuller_with_the_pod(given: Given) -> None:
    """Six of eight are used with it, and two of four: the larger node is the fuller one."""
    c = given.node("a4", gpus=4).node("b8", gpus=8)
    c.pod("other", gpus=4, node="b8", slots=15, plan="p")
    c.pod("p", gpus=2)
    c.when.bound()
    assert c.then.nodes() == {"p": "b8"}


def test_cpu_and_memory_count_alike(given: Given) -> None:
    """A pod without GPUs goes to the smaller node, in whichever amount it is small."""
    for fields, asked in (
        ({"cpu": 8_000}, {"cpu": 4_000, "memory": 0}),
        ({"memory": 64 * GIB}, {"cpu": 0, "memory": 32 * GIB}),
    ):
        c = Given().node("a-large").node("b-small", **fields).pod("p", **asked)
        c.when.bound()
        assert c.then.nodes() == {"p": "b-small"}


def test_a_share_opens_a_gpu_of_the_smaller_node(given: Given) -> None:
    """No GPU is shared yet: the node of eight stays empty."""
    c = given.node("a8", gpus=8).node("b4", gpus=4).pod("p", share=GpuShare(thousandths=500))
    c.when.bound()
    assert c.then.nodes() == {"p": "b4"}
