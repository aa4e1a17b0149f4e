"""Units of amounts: GPUs in thousandths, parts of GPUs in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.api.devices.slots import gpu_request, slot_ranges
from gpusched.api.meta.gpu_resources import DEFAULT_GPU_RESOURCES
from gpusched.api.meta.identity import InvalidObject
from gpusched.api.meta.quantity import format_quantity
from gpusched.api.meta.resources import Resources
from gpusched.api.meta.units import (
    DEVICE,
    pieces_to_base_units,
    unit_exponent,
    unit_of,
)


@pytest.mark.parametrize(
    ("text", "amount", "again", "told"),
    [
        ("8", 8000, "8", "8"),
        ("1500m", 1500, "1500m", "1.5"),
        (1.5, 1500, "1500m", "1.5"),
        ("0.25", 250, "250m", "0.25"),
        ("151500m", 151_500, "151500m", "151.5"),
    ],
)
def test_gpus_are_counted_in_thousandths(text, amount, again, told):
    """They are written as the API server writes them, and told as people write them."""
    read = Resources.parse({"nvidia.com/gpu": text}, field="deserved")
    assert dict(read.items) == {"nvidia.com/gpu": amount}
    assert read.quantities() == {"nvidia.com/gpu": again}
    assert read.text() == f"{told} nvidia.com/gpu"
    assert format_quantity(amount, resource="nvidia.com/gpu of node pool a") == told


@pytest.mark.parametrize(("amount", "told"), [(500, "500m"), (1001, "1.001"), (-2500, "-2.5")])
def test_parts_of_one_cpu_are_told_in_thousandths(amount, told):
    """As they stand in manifests; larger amounts are easier to read with a point."""
    assert format_quantity(amount, resource="cpu") == told


def test_slices_are_pieces():
    """A MIG slice is a whole thing of its own."""
    name = "nvidia.com/mig-1g.5gb"
    assert (unit_exponent(name), unit_of(name)) == (0, 1)
    assert dict(Resources.parse({name: "3"}, field="x").items) == {name: 3}


@given(
    st.dictionaries(
        st.sampled_from((*DEFAULT_GPU_RESOURCES.names, "cpu", "memory")), st.integers(0, 10**6)
    )
)
def test_pieces_become_base_units(amounts):
    """Only GPUs change, and each by the same factor."""
    made = pieces_to_base_units(amounts)
    assert made == {
        name: amount * (DEVICE if name in DEFAULT_GPU_RESOURCES.names else 1)
        for name, amount in amounts.items()
    }


def test_a_pod_asks_for_whole_gpus():
    """A part of one in a container's requests is no request that a node can grant."""
    assert gpu_request(Resources.of({"nvidia.com/gpu": 2000})) == ("nvidia.com/gpu", 2)
    with pytest.raises(InvalidObject, match=r"asks for 1\.5 nvidia\.com/gpu"):
        gpu_request(Resources.of({"nvidia.com/gpu": 1500}))


def test_half_a_gpu_of_a_node_is_no_slot():
    """What a node offers beyond whole GPUs is numbered by nobody."""
    assert slot_ranges(Resources.of({"nvidia.com/gpu": 2500})) == {"nvidia.com/gpu": range(2)}
