"""How many GPUs are idle, stranded, and held without work."""

from __future__ import annotations

import pytest

from gpusched.api.devices.gpu_share import GpuShare
from gpusched.api.pod.pod import NOMINATED
from gpusched.session.state.session_cache import SessionCache
from gpusched.session.status.gpu_counts import GpuCounts, count_gpus
from gpusched.testing.entities import GIB, NOW
from gpusched.testing.given import Given

H100 = {"nvidia.com/gpu.product": "H100"}
A100 = {"nvidia.com/gpu.product": "A100"}
REASONS = ("NodeUnavailable", "Fragmented", "NoCPUOrMemory")


def counted(given: Given) -> GpuCounts:
    snapshot = given.cache.take_snapshot(NOW)
    return count_gpus(snapshot, SessionCache().gpu_types.of_nodes(snapshot.nodes))


def stranded(given: Given) -> dict[tuple[str, str], int]:
    """Without the rows of zero."""
    return {row: count for row, count in counted(given).stranded.items() if count}


def test_gpus_are_counted_by_type(given):
    """Given nodes of two types and one without a label, then each type has its row."""
    given.nodes(2, gpus=8, labels=H100).nodes(1, gpus=4, labels=A100).nodes(1, gpus=2).nodes(1)
    given.pod("a", gpus=3, node="node-0", slots=0b111, scheduler="other")
    counts = counted(given)
    assert counts.total == {"H100": 16, "A100": 4, "unknown": 2}
    assert counts.idle == {"H100": 13, "A100": 4, "unknown": 2}
    assert counts.stranded == dict.fromkeys(
        [(name, reason) for name in counts.total for reason in REASONS], 0
    )
    assert counts.held == {}


@pytest.mark.parametrize("why", [{"unschedulable": True}, {"not_ready": "NotReady"}])
def test_idle_gpus_of_a_node_that_takes_no_pods_are_stranded(given, why):
    """Those that a pod has there work on and are not."""
    given.node("n", gpus=8, labels=H100, **why)
    given.pod("a", gpus=3, node="n", slots=0b111, scheduler="other").pod("b", gpus=1)
    assert stranded(given) == {("H100", "NodeUnavailable"): 5}


def test_gpus_that_are_too_few_for_any_pod_are_stranded(given):
    """Of eleven free ones on two nodes pods of four use eight; a pod of one uses the rest."""
    given.nodes(2, gpus=8, labels=H100)
    given.pod("held", gpus=5, node="node-0", slots=0b11111, scheduler="other")
    given.pod("four", gpus=4)
    assert stranded(given) == {("H100", "Fragmented"): 3}
    given.pod("one", gpus=1)
    assert stranded(given) == {}


def test_gpus_without_cores_beside_them_are_stranded(given):
    """Four GPUs are free, and cores for one pod of two GPUs are left."""
    given.node("n", gpus=8, cpu=32_000)
    given.pod("eater", gpus=4, cpu=20_000, node="n", slots=0b1111, scheduler="other")
    given.pod("wanted", gpus=2, cpu=8_000)
    assert stranded(given) == {("unknown", "NoCPUOrMemory"): 2}


def test_a_share_of_a_gpu_can_use_any_idle_one(given):
    """So none is stranded while memory is left."""
    given.node("n", gpus=3).pod("part", share=GpuShare(thousandths=500)).pod("two", gpus=2)
    assert stranded(given) == {}


def test_what_runs_counts_as_a_typical_pod(given):
    """Nothing waits, and a gang of pods with two GPUs runs: the odd GPU is of no use to such."""
    given.node("n", gpus=5).group("g", min_member=1)
    given.pod("g-0", group="g", gpus=2, node="n", slots=0b11)
    assert stranded(given) == {("unknown", "Fragmented"): 1}


def test_where_nobody_asks_for_gpus_none_of_an_open_node_is_stranded(given):
    """Nothing is known of what would use them."""
    given.node("n", gpus=8, memory=GIB).pod("p", cpu=1000)
    counts = counted(given)
    assert (counts.idle, stranded(given)) == ({"unknown": 8}, {})


def test_a_gang_below_its_minimum_holds_gpus_without_work():
    """One of three has a place with two GPUs; a complete gang beside it holds none."""
    given = Given()  # its own: a gang in part is what every other test must not leave behind
    given.nodes(2, gpus=8).group("part", min_member=3, queue="default")
    given.pod("part-0", group="part", gpus=2, node="node-0", slots=0b11)
    given.pods("part-x", 2, group="part", gpus=8)
    given.group("whole", min_member=1).pod(
        "whole-0", group="whole", gpus=4, node="node-1", slots=0b1111
    )
    assert counted(given).held == {("default", "BelowMinimum"): 2.0}


def test_gpus_that_are_promised_to_a_pod_are_held(given):
    """Its victims still leave; a nomination of another scheduler's making is none of ours."""
    given.node("n", gpus=8)
    given.pod("mine", gpus=4, nominated="n", unschedulable_reason=NOMINATED)
    given.pod("odd", gpus=4, nominated="n")
    assert counted(given).held == {("default", "PreemptionInProgress"): 4.0}
