"""Whose word about a node's GPUs counts, and what is said when it cannot be believed."""

from __future__ import annotations

import itertools

import attrs
import msgspec
import pytest

from gpusched.api.devices import published_devices
from gpusched.api.devices.dynamic.decode import CODECS
from gpusched.api.devices.gpu_layout import (
    FLAT,
    GpuLayout,
    GpuLayoutCatalog,
    GpuLayoutError,
    parse_islands,
)
from gpusched.api.meta.identity import InvalidObject
from gpusched.api.meta.resources import Resources
from gpusched.base.errors import ConfigError
from gpusched.config.gpu_layouts import load_layouts, load_shipped_layouts
from gpusched.testing import entities
from gpusched.topology.layout_choice import choose_layout
from gpusched.topology.published_layout import layout_from_devices

PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7))
HALVES = ((0, 1, 2, 3), (4, 5, 6, 7))
CATALOGUE = GpuLayoutCatalog({"pairs": GpuLayout(PAIRS), "Acme-8": GpuLayout(HALVES, HALVES)})


def node(gpus=8, layout=(), built_in=0, trouble="", **labels):
    """A node as the API has it."""
    plain = entities.node("n", gpus=gpus, layout=layout, labels=labels)
    return attrs.evolve(plain, gpus_installed=built_in, layout_error=trouble)


def said(found):
    """Fields of what does not count."""
    layout, doubts = found
    return layout.islands, [doubt.field for doubt in doubts]


LABEL = {"gpusched.io/gpu-layout": "pairs"}
PRODUCT = {"nvidia.com/gpu.product": "Acme-8"}


def test_sources_count_in_the_published_order():
    """Slices, annotation, label, product, nothing."""
    everything = node(layout=((0, 7), (1, 6), (2, 5), (3, 4)), **LABEL, **PRODUCT)
    crossed = GpuLayout(((0, 2, 4, 6), (1, 3, 5, 7)))
    assert said(choose_layout(everything, CATALOGUE, crossed)) == (crossed.islands, [])
    assert said(choose_layout(everything, CATALOGUE))[0][0] == (0, 7)
    assert said(choose_layout(node(**LABEL, **PRODUCT), CATALOGUE)) == (PAIRS, [])
    assert choose_layout(node(**PRODUCT), CATALOGUE) == (GpuLayout(HALVES, HALVES), ())
    assert said(choose_layout(node(), CATALOGUE)) == ((), [])


def test_each_source_that_does_not_match_leaves_the_word_to_the_next():
    """Six GPUs where the node has eight, an unknown name: told, and the product counts."""
    six = GpuLayout(((0, 1, 2), (3, 4, 5)))
    odd = node(layout=six.islands, **{"gpusched.io/gpu-layout": "x"}, **PRODUCT)
    layout, doubts = choose_layout(odd, CATALOGUE, six)
    assert layout.islands == HALVES
    assert [doubt.message for doubt in doubts] == [
        "ResourceSlice.spec.devices: name 6 GPUs, the node has 8",
        "metadata.annotations[gpusched.io/gpu-layout]: names 6 GPUs, the node has 8",
        "metadata.labels[gpusched.io/gpu-layout]: names the layout 'x', which is not in gpu-layouts.yaml",
    ]


def test_a_gpu_that_failed_leaves_the_layout_as_it_is():
    """Seven of eight are allocatable: the annotation of eight is right all the same."""
    found = choose_layout(node(gpus=7, layout=PAIRS, built_in=8), CATALOGUE)
    assert said(found) == (PAIRS, [])


def test_a_layout_names_whole_gpus_and_no_slices():
    """Behind four GPUs with a layout stand slices, which it need not name."""
    plain = node(4, ((0, 1), (2, 3)))
    slices = {**dict(plain.allocatable.items), "nvidia.com/mig-1g.5gb": 7}
    beside = attrs.evolve(plain, allocatable=Resources.of(slices))
    assert said(choose_layout(beside, CATALOGUE)) == (((0, 1), (2, 3)), [])


def test_a_product_with_fewer_slots_than_the_node_says_nothing():
    """A layout of eight does not do for sixteen; one of eight does for four."""
    assert said(choose_layout(node(gpus=16, **PRODUCT), CATALOGUE)) == ((), [])
    assert said(choose_layout(node(gpus=4, **PRODUCT), CATALOGUE)) == (HALVES, [])


def test_a_node_without_gpus_is_asked_nothing():
    """Drivers come later than nodes: a layout before its GPUs is no mistake."""
    assert choose_layout(node(gpus=0, layout=PAIRS), CATALOGUE) == (FLAT, ())


# -- what a layout may be --------------------------------------------------------------------
@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([], "must be a list of islands"),
        ({"a": 1}, "must be a list of islands"),
        ([[0, 1], []], "none of them empty"),
        ([[0, 1], [1, 2]], "must not name slot 1 in two islands"),
        ([[0, 0]], "must not name slot 0 in two islands"),
        ([[1, 2]], "must number its slots from 0 without gap, but names 2 slots up to 2"),
        ([[0, True]], "whole numbers"),
        ([[0, 1.5]], "whole numbers"),
        ([["0"]], "whole numbers"),
        ([[-1, 0]], "must have slots from 0 to 1023"),
        ([[0, 5000]], "must have slots from 0 to 1023"),
        ([[0, [1]]], "must not mix slots and islands"),
        ([0, 1], "islands that are lists of slots"),
        ([[[[[[0]]]]]], "nested deeper than 4 levels"),
    ],
)
def test_a_layout_is_disjoint_islands_of_slots_from_zero(value, why):
    """Anything else is refused with a sentence."""
    with pytest.raises(GpuLayoutError, match=why):
        parse_islands(value)


# -- the catalogue ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "f:1: is empty: write {} to name no layout"),
        ("[1]", "f:1: the layouts must be a mapping, not a list"),
        ("a: [[0, 1]]\nb: [[0, 1], [1, 2]]", 'f:2: "b" must not name slot 1 in two islands'),
        ("a: {numa: [[0]]}", 'f:1: "a" needs the key islands'),
        ("a:\n  islands: [[0, 1]]\n  nuna: [[0, 1]]", 'f:3: unknown key "nuna" in "a"'),
        ("a:\n  islands: [[0, 1]]\n  numa: [[0]]", 'f:3: numa of "a" must name each slot'),
        ("a: [[0]]\na: [[0]]", 'f:2: duplicate key "a"'),
        ("a: 3", 'f:1: "a" must be a list of islands'),
    ],
)
def test_a_bad_catalogue_is_refused_with_file_and_line(text, why):
    """As every file of the configuration."""
    with pytest.raises(ConfigError) as error:
        load_layouts(text.encode(), source="f")
    assert str(error.value).startswith(why)


def test_the_shipped_catalogue_is_read():
    """It comes with the program, and an empty one says nothing."""
    assert load_shipped_layouts().get("NVIDIA-H100-80GB-HBM3") is not None
    assert load_layouts(b"{}", source="f") == GpuLayoutCatalog()


# -- slices ----------------------------------------------------------------------------------
def device_slice(devices_, *, driver="gpu.nvidia.com", generation=1, parts=1, name="s", pool="p"):
    """A ResourceSlice from JSON to entity."""
    raw = {
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
        "spec": {
            "driver": driver,
            "nodeName": "n",
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": parts},
            "devices": devices_,
        },
    }
    return published_devices.gpu_slice(CODECS["ResourceSlice"].entity_of(msgspec.json.encode(raw)))


def gpu(number, *, kind="gpu", **attributes):
    """One device; numbers and texts as the API has them."""
    values = {
        name: {"int": value} if isinstance(value, int) else {"string": value}
        for name, value in attributes.items()
    }
    values["type"] = {"string": kind}
    return {"name": f"gpu-{number}", "attributes": values}


def test_pcie_roots_are_islands_and_numa_nodes_hold_them():
    """Standard attributes: halves by NUMA node, pairs by PCIe root, in the order of devices."""
    some = [
        gpu(n, **{"resource.kubernetes.io/pcieRoot": f"r{n // 2}", "dra.net/numaNode": n // 4})
        for n in range(8)
    ]
    for order in itertools.islice(itertools.permutations(some), 0, 40000, 4999):
        found = layout_from_devices([device_slice(list(order))])
        assert found == GpuLayout((((0, 1), (2, 3)), ((4, 5), (6, 7))), HALVES)


def test_devices_are_numbered_by_their_index():
    """The index of the device decides, not its name."""
    some = [gpu(7 - n, index=n, pcieRoot=f"r{n % 2}") for n in range(8)]
    assert layout_from_devices([device_slice(some)]).islands == ((0, 2, 4, 6), (1, 3, 5, 7))


def test_ten_comes_behind_nine():
    """Numbers in names are numbers."""
    some = [gpu(n, numa=n // 8) for n in range(16)]
    assert layout_from_devices([device_slice(some[::-1])]).islands == (
        tuple(range(8)),
        tuple(range(8, 16)),
    )


@pytest.mark.parametrize(
    "some",
    [
        [gpu(n, pcieRoot=f"r{n}") for n in range(8)],
        [gpu(n, numa=0) for n in range(8)],
        [gpu(n, uuid=f"GPU-{n}") for n in range(8)],
        [gpu(n, numa=n // 4) for n in range(7)] + [gpu(7)],
        [],
    ],
)
def test_attributes_that_tell_nothing_leave_the_word_to_others(some):
    """All alone, all together, or not all of them: no layout."""
    assert layout_from_devices([device_slice(some)]) is None


def test_only_whole_gpus_of_gpu_drivers_count():
    """Slices of GPUs, CPUs and network cards are no slots."""
    whole = [gpu(n, numa=n // 4) for n in range(8)]
    parts = [gpu(n + 8, kind="mig", numa=0) for n in range(3)]
    nics = device_slice(whole, driver="dra.net", name="t")
    assert layout_from_devices([device_slice(whole + parts), nics]).slots == 8
    assert nics.node == ""


def test_a_pool_counts_when_it_is_complete():
    """One of two slices says nothing yet; slices of an older generation do not count."""
    first = device_slice([gpu(n, numa=0) for n in range(4)], parts=2, generation=2, name="a")
    second = device_slice([gpu(n, numa=1) for n in range(4, 8)], parts=2, generation=2, name="b")
    old = device_slice([gpu(n, numa=n % 2) for n in range(8)], generation=1, name="c")
    assert layout_from_devices([first, old]) is None
    assert layout_from_devices([first, second, old]).islands == HALVES


def test_thousands_of_devices_are_not_believed():
    """Nobody has so many in one slice."""
    with pytest.raises(InvalidObject, match="has 2000 devices"):
        device_slice([gpu(n) for n in range(2000)])
