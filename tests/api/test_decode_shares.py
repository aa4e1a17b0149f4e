"""Shares of GPUs and slices: what pods and nodes say about them, and what is not believed."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.api.devices.gpu_share import GpuShare, gpu_memory_of_labels, offers_gpu_slices
from gpusched.api.devices.slots import gpu_request, slot_ranges
from gpusched.api.meta.identity import Rejected
from gpusched.api.meta.resources import Resources
from gpusched.cache.nodes import holdings

GPU = "nvidia.com/gpu"
GIB = 2**30
FRACTION, MEMORY = "gpusched.io/gpu-fraction", "gpusched.io/gpu-memory"


@pytest.fixture
def plain(pod):
    """The pod without its GPUs."""
    made = copy.deepcopy(pod)
    for container in made["spec"]["containers"]:
        for amounts in container["resources"].values():
            amounts.pop(GPU, None)
    return made


def asking(pod, where="annotations", **said):
    """The pod with annotations (or labels); ``/`` and ``-`` are written as they are."""
    pod["metadata"].setdefault(where, {}).update(said.pop("said", said))
    return pod


@pytest.mark.parametrize(
    ("said", "share", "charged"),
    [
        ({FRACTION: "0.25"}, GpuShare(thousandths=250), 250),
        ({FRACTION: ".5"}, GpuShare(thousandths=500), 500),
        ({FRACTION: "0.001"}, GpuShare(thousandths=1), 1),
        ({MEMORY: "10Gi"}, GpuShare(memory=10 * GIB), 1000),
        ({MEMORY: "500M"}, GpuShare(memory=500_000_000), 1000),
        ({"gpu-fraction": "0.5"}, GpuShare(thousandths=500), 500),
        ({"gpu-fraction": "0.3333"}, GpuShare(thousandths=334), 334),
        ({"gpu-memory": "2000"}, GpuShare(memory=2000 * 2**20), 1000),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "1"}, GpuShare(thousandths=500), 500),
        ({FRACTION: "0.25", "gpu-fraction": "abc"}, GpuShare(thousandths=250), 250),
    ],
)
def test_shares_that_are_understood(wire, plain, said, share, charged):
    """Ours as annotations or labels, KAI's as annotations; ours win."""
    if set(said) <= {FRACTION, MEMORY}:
        label = wire.read("pods", asking(copy.deepcopy(plain), "labels", said=said))
        assert label.pod_class.share == share
    read = wire.read("pods", asking(plain, said=said))
    assert not isinstance(read, Rejected), read
    assert read.pod_class.share == share
    assert (read.pod_class.gpu, read.pod_class.gpus) == (GPU, 0)
    assert read.pod_class.gpu_thousandths == read.pod_class.requests.get(GPU) == charged


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({FRACTION: "0"}, "'0' is no part of a GPU"),
        ({FRACTION: "0.0"}, "'0.0' is no part of a GPU"),
        ({FRACTION: "1"}, "'1' is no part of a GPU"),
        ({FRACTION: "1.5"}, "'1.5' is no part of a GPU"),
        ({FRACTION: "abc"}, "'abc' is no part of a GPU"),
        ({FRACTION: "NaN"}, "'NaN' is no part of a GPU"),
        ({FRACTION: "-0.5"}, "'-0.5' is no part of a GPU"),
        ({FRACTION: "0.1234"}, "'0.1234' is no part of a GPU"),
        ({FRACTION: "5e-1"}, "'5e-1' is no part of a GPU"),
        ({FRACTION: "\u0660.\u0665"}, "is no part of a GPU"),
        ({FRACTION: ""}, "is no part of a GPU"),
        ({FRACTION: "0." + "1" * 100_000}, "is no part of a GPU"),
        ({MEMORY: "0"}, "'0' is no memory"),
        ({MEMORY: "-1Gi"}, "'-1Gi' is negative"),
        ({MEMORY: "lots"}, "'lots' is not a quantity"),
        ({MEMORY: "1e30"}, "more than any machine has"),
        ({FRACTION: "0.5", MEMORY: "1Gi"}, "not in both"),
        ({"gpu-fraction": "2"}, "'2' is no part of a GPU"),
        ({"gpu-memory": "1Gi"}, "'1Gi' is no number of MiB"),
        ({"gpu-memory": "0"}, "'0' is no number of MiB"),
        ({"gpu-fraction": "0.5", "gpu-memory": "5"}, "not in both"),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}, "'2': shares are of one GPU"),
    ],
)
def test_shares_that_are_refused(wire, plain, said, message):
    """With the annotation and what is wrong with it."""
    read = wire.read("pods", asking(plain, said=said))
    assert isinstance(read, Rejected)
    assert read.field.startswith("metadata.annotations[")
    assert message in read.why
    assert len(read.why) < 400


@pytest.mark.parametrize("name", [GPU, "amd.com/gpu", "nvidia.com/mig-1g.5gb"])
def test_a_share_beside_whole_gpus_is_refused(wire, plain, name):
    """The kubelet would give it a whole one on top."""
    plain["spec"]["containers"][0]["resources"] = {"limits": {name: "1"}}
    read = wire.read("pods", asking(plain, said={FRACTION: "0.5"}))
    assert isinstance(read, Rejected)
    assert f"asks for {name}, and its annotations for a share of a GPU" in read.why


def test_a_bound_share_that_cannot_be_read_keeps_its_gpu(wire, plain):
    """Someone edits the annotation of a running pod: its slot is not given to anybody else.

    That is so where we gave it one: who presets a node and cannot be read asks for no GPU.
    """
    notes = {FRACTION: "much", "gpusched.io/slots": "3", "gpusched.io/fence": "f/1"}
    running = asking(plain, said=notes)
    running["spec"]["nodeName"] = "n1"
    running["status"]["phase"] = "Running"
    read = wire.read("pods", running)
    assert isinstance(read, Rejected)
    assert (read.charge.node, read.charge.slots) == ("n1", 0b1000)
    assert (read.charge.shared, read.charge.requests.get(GPU)) == (True, 0)
    held = [holdings.rejected_holding(read, sealed=sealed) for sealed in (True, False)]
    assert [(each.requests.get(GPU), each.slots) for each in held] == [(1000, 0b1000), (0, 0)]


def test_pods_that_differ_in_their_share_are_of_two_classes(wire, plain):
    """And equal ones of one, however their share is written."""
    texts = ("0.5", ".50", "0.25", "0.500")
    classes = [
        wire.read("pods", asking(copy.deepcopy(plain), said={FRACTION: text})).pod_class
        for text in texts
    ]
    assert classes[0] is classes[1] is classes[3]
    assert classes[0].digest != classes[2].digest


@given(st.integers(1, 999), st.integers(0, 2**40))
def test_a_fraction_is_one_on_every_gpu(thousandths, memory):
    """Whatever the memory of the GPU."""
    assert GpuShare(thousandths=thousandths).thousandths_of(memory) == thousandths


@given(st.integers(1, 2**45), st.integers(0, 2**45))
def test_memory_is_rounded_up_and_never_promises_more(wanted, there):
    """The part holds at least what is asked for, and a GPU that is too small takes nothing."""
    part = GpuShare(memory=wanted).thousandths_of(there)
    if not there or wanted > there:
        assert part == 0
    else:
        assert 1 <= part <= 1000
        assert part * there >= wanted * 1000
        assert (part - 1) * there < wanted * 1000


def test_what_nodes_say_of_their_gpus():
    """MiB by label; nonsense says nothing; slices and replicas are told by labels."""
    assert gpu_memory_of_labels({"nvidia.com/gpu.memory": "81920"}) == 80 * GIB
    for text in ("", "-1", "80Gi", "1" * 30, "\u0663"):
        assert gpu_memory_of_labels({"nvidia.com/gpu.memory": text}) == 0
    assert gpu_memory_of_labels({}) == 0
    assert offers_gpu_slices({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"})
    assert offers_gpu_slices({"nvidia.com/gpu.product": "Tesla-T4-SHARED"})
    assert offers_gpu_slices({"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.replicas": "4"})
    assert not offers_gpu_slices(
        {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.replicas": "1"}
    )
    assert not offers_gpu_slices({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"})


# -- slices ------------------------------------------------------------------------------------
SMALL, LARGE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"


def test_slices_are_numbered_behind_whole_gpus():
    """By name of the profile, whatever order the node lists them in."""
    node = Resources.of({LARGE: 2, SMALL: 3, GPU: 4000, "cpu": 1})
    assert slot_ranges(node) == {GPU: range(4), SMALL: range(4, 7), LARGE: range(7, 9)}
    assert slot_ranges(Resources.of({SMALL: 7, GPU: 0})) == {SMALL: range(7)}


def test_a_pod_asks_for_slices_of_one_profile(wire, plain):
    """Two of a kind are two slots; two kinds at once are refused."""
    plain["spec"]["containers"][0]["resources"] = {"limits": {SMALL: "2"}}
    read = wire.read("pods", plain)
    assert (read.pod_class.gpu, read.pod_class.gpus) == (SMALL, 2)
    assert read.pod_class.requests.get(SMALL) == 2
    plain["spec"]["containers"][0]["resources"] = {"limits": {SMALL: "2", LARGE: "1"}}
    read = wire.read("pods", plain)
    assert isinstance(read, Rejected)
    assert f"asks for both {SMALL} and {LARGE}" in read.why


def test_whole_gpus_and_slices_at_once_are_refused():
    """No layout can promise that they belong together."""
    with pytest.raises(ValueError, match="asks for both"):
        gpu_request(Resources.of({GPU: 1000, SMALL: 1}))
