"""GPUs of a type that weighs more count more: in shares, limits, usage and lost work of queues."""

from __future__ import annotations

import attrs
import pytest

from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.api.pod.pod import PodPhase
from gpusched.config.model import DEFAULT, Config, PluginChoice, PluginTier
from gpusched.testing.entities import NOW
from gpusched.testing.given import Given

A100 = "NVIDIA-A100-SXM4-80GB"
H100 = "NVIDIA-H100-80GB-HBM3"
PRODUCT = "nvidia.com/gpu.product"
GPU = "nvidia.com/gpu"


@pytest.fixture(autouse=True)
def _weights():
    """An H100 counts as two and a half GPUs."""
    with gpu_resources_in_force(weighed().gpu_resources):
        yield


def weighed(**weights: int) -> Config:
    """The shipped configuration with weights in thousandths."""
    chosen = tuple(sorted((weights or {"h100": 2_500}).items()))
    gpus = attrs.evolve(DEFAULT.gpu_resources, type_weights=chosen)
    usage = PluginTier((PluginChoice("usage"),))
    return attrs.evolve(DEFAULT, gpu_resources=gpus, tiers=(*DEFAULT.tiers, usage))


def two_types(a100: int, h100: int) -> Given:
    """So many nodes of eight GPUs of each type."""
    c = Given(config=weighed())
    c.nodes(a100, prefix="a", rack="r", gpus=8, labels={PRODUCT: A100})
    return c.nodes(h100, prefix="h", rack="r", gpus=8, labels={PRODUCT: H100})


def running(c: Given, name: str, node: str, queue: str, *, since: float = NOW - 60.0) -> Given:
    """A lone pod that has all GPUs of a node."""
    return c.pod(
        name, gpus=8, node=node, queue=queue, phase=PodPhase.RUNNING, scheduled=since,
    )  # fmt: skip


def test_a_queue_holds_what_its_gpus_weigh():
    c = two_types(1, 1).queue("a")
    running(running(c, "x", "a-0", "a"), "y", "h-1", "a")
    c.gang("wants", pods=1, gpus=8, queue="a")
    c.when.one_session()
    assert c.then.queue("a").allocated.get(GPU) == 8_000 + 20_000


def test_the_cluster_that_is_divided_weighs_as_much():
    """28 GPUs are there by weight, and both queues ask for more: each is due half of them."""
    c = two_types(1, 1).queue("a").queue("b")
    for queue in ("a", "b"):
        c.gang(f"{queue}-many", pods=4, gpus=8, queue=queue)
    c.when.one_session()
    assert c.then.queue("a").fair_share.get(GPU) == 14_000
    assert c.then.queue("b").fair_share.get(GPU) == 14_000


def test_who_holds_the_heavy_type_is_served_after_who_holds_the_light_one():
    """Both hold one node of eight; queue a holds H100, so b is next."""
    c = two_types(2, 1).queue("a").queue("b")
    running(running(c, "x", "h-2", "a"), "y", "a-0", "b")
    c.gang("a-next", pods=1, gpus=8, queue="a", created=1_000.0)
    c.gang("b-next", pods=1, gpus=8, queue="b", created=2_000.0)
    c.when.one_session()
    assert c.then.started() == ["b-next"]


def test_a_limit_is_about_weighed_gpus():
    """Eight H100 would weigh 20 of the 10 that the queue may hold, eight A100 weigh 8."""
    c = two_types(1, 1).queue("a", limits={"capability": {GPU: 10}})
    c.gang("g", pods=1, gpus=8, queue="a", node_selector={PRODUCT: H100})
    c.when.one_session()
    assert not c.then.nodes()
    assert c.then.reason("g") in {"QuotaExceeded", "WaitingForQuota"}
    c.gang("other", pods=1, gpus=8, queue="a")
    c.when.one_session()
    assert c.then.nodes() == {"other-0": "a-0"}


def test_a_gang_that_may_be_anywhere_gets_the_type_that_its_queue_can_pay():
    """The A100 node is full, and H100 would pass the limit: it waits for the quota."""
    c = two_types(1, 1).queue("a", limits={"capability": {GPU: 10}}).queue("b")
    running(c, "x", "a-0", "b")
    c.gang("g", pods=1, gpus=8, queue="a")
    c.when.one_session()
    assert not c.then.nodes()


def test_of_types_that_are_alike_to_it_a_gang_gets_the_lighter():
    c = two_types(2, 2).gang("g", pods=2, gpus=8)
    c.when.one_session()
    assert {node[0] for node in c.then.nodes().values()} == {"a"}


def test_used_hours_are_weighed():
    """Of 28 GPUs by weight, eight H100 are 20."""
    c = two_types(1, 1).queue("a")
    running(c, "x", "h-1", "a")
    c.gang("wants", pods=1, gpus=8, queue="a")
    c.when.one_session()
    usage = c.then.queue("a").usage
    assert usage is not None
    assert dict(usage.share)[GPU] == 20 * 10**9 // 28


def test_lost_hours_are_weighed():
    """Ninety minutes on A100 are less than an hour on H100."""
    c = two_types(1, 1).queue("a", limits={"deserved": {GPU: 0}})
    c.queue("b", limits={"deserved": {GPU: 28}})
    running(c, "short", "h-1", "a", since=NOW - 3_600.0)
    running(c, "long", "a-0", "a", since=NOW - 5_400.0)
    c.gang("g", pods=1, gpus=8, queue="b")
    c.when.one_session()
    assert c.then.evicted() == ["long"]


def test_without_weights_nothing_is_weighed():
    c = Given()
    c.nodes(1, prefix="h", gpus=8, labels={PRODUCT: H100}).queue("a")
    with gpu_resources_in_force(DEFAULT.gpu_resources):
        running(c, "x", "h-0", "a")
        c.gang("wants", pods=1, gpus=8, queue="a")
        c.when.one_session()
        assert c.then.queue("a").allocated.get(GPU) == 8_000
