"""Quantities are exact, resources add up, slots and durations read back what was written."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.api.devices.slots import (
    format_slots,
    gpu_request,
    parse_slots,
    slot_mask,
    slot_numbers,
    slot_ranges,
)
from gpusched.api.meta.identity import InvalidObject
from gpusched.api.meta.quantity import QuantityError, format_quantity, parse_quantity
from gpusched.api.meta.resources import NOTHING, Resources, total
from gpusched.base.limits import COLUMN_MAX, QUANTITY_MAX, SLOTS_PER_NODE_MAX

FACTORS = {
    "": Fraction(1),
    **{
        s: Fraction(10) ** p
        for s, p in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
    },
    **{f"{s}i": Fraction(2) ** (10 * n) for n, s in enumerate("KMGTPE", start=1)},
    **{f"e{n}": Fraction(10) ** n for n in range(-20, 40)},
    **{f"E+{n}": Fraction(10) ** n for n in range(40)},
}
NUMBERS = st.one_of(
    st.from_regex(r"[0-9]{1,20}", fullmatch=True),
    st.from_regex(r"[0-9]{0,18}\.[0-9]{1,18}", fullmatch=True),
    st.from_regex(r"[0-9]{1,18}\.", fullmatch=True),
)


@given(
    NUMBERS,
    st.sampled_from(sorted(FACTORS)),
    st.sampled_from(["", "+", "-"]),
    st.sampled_from([0, 3]),
)
def test_quantities_are_exact_and_round_up(digits, suffix, sign, power):
    """Against fractions, which know no rounding; outside the bounds it is refused."""
    exact = Fraction(digits.rstrip(".") if digits.endswith(".") else f"0{digits}") * FACTORS[suffix]
    wanted = ceil(exact * 10**power)
    text = f"{sign}{digits}{suffix}"
    if (sign == "-" and exact) or wanted > QUANTITY_MAX:
        with pytest.raises(QuantityError):
            parse_quantity(text, power=power)
    else:
        assert parse_quantity(text, power=power) == wanted


@given(st.integers(0, QUANTITY_MAX), st.sampled_from(["cpu", "memory", "hugepages-2Mi", "x.y/z"]))
def test_what_is_written_reads_back(amount, resource):
    """Formatting loses nothing."""
    text = format_quantity(amount, resource=resource)
    assert parse_quantity(text, power=3 if resource == "cpu" else 0) == amount


@pytest.mark.parametrize(
    "text",
    ["", " ", ".", "+", "-", "1 ", " 1", "1x", "1Ki2", "1kk", "0x10", "1e", "e5", "1e1000", "1.2.3",
     "\u0661", "\u00bd", "1\n", "\uff11", "1_000", "1,5", "NaN", "Infinity", "1" * 41, "--1", "1ki"],
)  # fmt: skip
def test_what_is_no_quantity(text):
    """Nothing is guessed."""
    with pytest.raises(QuantityError, match="is not a quantity"):
        parse_quantity(text)


def test_the_bound_itself():
    """2**53 base units are the last that is believed."""
    assert parse_quantity(str(QUANTITY_MAX)) == QUANTITY_MAX
    for text in (str(QUANTITY_MAX + 1), "1e30", "9223372036854775808", "16Ei"):
        with pytest.raises(QuantityError, match="more than any machine has"):
            parse_quantity(text)
    assert parse_quantity("1n") == 1
    assert parse_quantity("-0") == 0


AMOUNTS = st.builds(
    Resources.of,
    st.dictionaries(
        st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu"]), st.integers(0, QUANTITY_MAX)
    ),
)
NAMES = ("cpu", "memory", "nvidia.com/gpu", "pods")


@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_resources_add_up(a, b, c):
    """Sums are commutative, associative, have a zero and are those of each name."""
    assert a.plus(b) == b.plus(a)
    assert a.plus(b).plus(c) == a.plus(b.plus(c)) == total([a, b, c])
    assert a.plus(NOTHING) == a == NOTHING.plus(a)
    assert a.plus(b, times=3) == a.plus(b).plus(b).plus(b)
    for name in NAMES:
        assert a.plus(b).get(name) == a.get(name) + b.get(name)
        assert a.maximum(b).get(name) == max(a.get(name), b.get(name))
        assert a.replaced_by(b).get(name) == (b if name in b else a).get(name)
    assert a.maximum(b) == b.maximum(a)
    assert a.maximum(a) == a
    assert bool(a) == any(a.get(name) for name in NAMES)


@given(AMOUNTS)
def test_resources_read_back(a):
    """A ResourceList that we wrote means the same when read."""
    assert Resources.parse(a.quantities(), field="x") == a
    assert [name for name, _ in a.items] == sorted(name for name, _ in a.items)


def test_sums_saturate():
    """Far from overflow, which numpy does not report."""
    most = Resources.of({"cpu": QUANTITY_MAX})
    assert most.plus(most, times=10**6).get("cpu") == COLUMN_MAX
    assert total([most] * 600).get("cpu") == COLUMN_MAX


def test_too_many_resources():
    """Someone is storing data in them."""
    with pytest.raises(QuantityError, match="names 65 resources"):
        Resources.parse({f"r{n}": "1" for n in range(65)}, field="x")


@given(st.sets(st.integers(0, SLOTS_PER_NODE_MAX - 1)))
def test_slots_read_back(numbers):
    """A set of slots, its mask and its text say the same."""
    mask = slot_mask(tuple(numbers))
    assert set(slot_numbers(mask)) == numbers
    assert parse_slots(format_slots(mask)) == mask


@pytest.mark.parametrize(
    "text",
    [",", "0,", "0,,1", "a", "-1", "0,0", "1024", "0, 1", "\u0661", "9" * 9000, "0x1", "1.0"],
)
def test_forged_slots(text):
    """Anything but distinct numbers of slots is refused."""
    with pytest.raises(InvalidObject, match="is no list of slots"):
        parse_slots(text)


def test_slot_numbers_of_a_mixed_node():
    """Each kind has its own range, in the order of names; too many are only counted."""
    node = Resources.of({"nvidia.com/gpu": 4000, "amd.com/gpu": 2000, "cpu": 5})
    assert slot_ranges(node) == {"amd.com/gpu": range(2), "nvidia.com/gpu": range(2, 6)}
    assert slot_ranges(Resources.of({"nvidia.com/gpu": 1_025_000})) == {}
    assert gpu_request(NOTHING) == ("", 0)
