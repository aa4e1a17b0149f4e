"""A verdict that is shared by alike devices is the one that each of them would get for itself."""

from __future__ import annotations

import random

import attrs
import pytest

from gpusched.api.devices.dynamic.slices import Device, DeviceCapacity, Version
from gpusched.cel.device_selectors import (
    SelectorFailed,
    SelectorInvalid,
    compile_selector,
    make_device_view,
    selector_reads,
)
from gpusched.devices.selector_verdicts import Mismatch, selector_verdict

DRIVER = "a.com"
A = "device.attributes['a.com']"
TEXTS = [
    "device.driver == 'a.com'",
    "device.allowMultipleAllocations",
    f"{A}.x == 1",
    f"{A}.x == true",
    f"{A}['x'] == '1'",
    f"has({A}.x)",
    f"'x' in {A}",
    "'x' in device.attributes['b.com'] && device.attributes['b.com'].x",
    f"{A}.?x.orValue('none') == 'none'",
    f"{A}[?'x'].hasValue()",
    f"{A}.size() == 1",
    "device.attributes.size() == 1",
    "'b.com' in device.attributes",
    "device.attributes[?'b.com'].hasValue()",
    "device.attributes.exists(domain, domain == 'b.com')",
    f"cel.bind(own, {A}, own.x == 1)",
    f"['x', 'y'].all(name, {A}[name] == 1)",
    f"{A}.x.exists(one, one == 1)",
    f"{A}.y == {A}.x",
    f"{A}.v.isGreaterThan(semver('1.0.0'))",
    "device.capacity['a.com'].memory.compareTo(quantity('1')) > 0",
    "has(device.capacity['a.com'].memory)",
    "'a.com' in device.capacity",
    "[device].exists(device, device.driver == 'a.com')",
    "[1].exists(device, device == 1)",
    "device == device",
    "device.attributes['a.com'",
    "no.such == 1",
]
VALUES = [1, True, "1", 0, False, "", Version("1.2.3"), Version("no version"), (1, 2), (True,), ()]


def a_device(rng: random.Random) -> Device:
    names = [f"{domain}.com/{name}" for domain in "ab" for name in "xyzv"]
    chosen = sorted(rng.sample(names, rng.randint(0, 4)))
    values = VALUES if rng.random() < 0.5 else VALUES[:6]
    amounts = sorted(rng.sample(["a.com/memory", "b.com/memory", "a.com/cores"], rng.randint(0, 2)))
    return Device(
        name="d",
        attributes=tuple((name, rng.choice(values)) for name in chosen),
        capacities=tuple(DeviceCapacity(name=e, amount=rng.choice([0, 10**10])) for e in amounts),
        shareable=rng.random() < 0.5,
    )


def alone(texts: tuple[str, ...], device: Device) -> bool | Mismatch:
    """What the expressions say of the whole device."""
    view = make_device_view(
        DRIVER,
        dict(device.attributes),
        {each.name: each.amount for each in device.capacities},
        shareable=device.shareable,
    )
    for text in texts:
        try:
            if not compile_selector(text).matches(view):
                return False
        except (SelectorInvalid, SelectorFailed) as why:
            return Mismatch(str(why))
    return True


@pytest.mark.parametrize("text", TEXTS)
def test_a_verdict_is_that_of_the_whole_device(text: str) -> None:
    rng = random.Random(text)
    seen = set()
    for _ in range(300):
        device, more = a_device(rng), (rng.choice(TEXTS),) if rng.random() < 0.3 else ()
        found = selector_verdict((text, *more), device, DRIVER)
        assert found == alone((text, *more), device), device
        seen.add(found if isinstance(found, bool) else Mismatch)
    assert seen


def test_values_of_several_types_are_told_apart() -> None:
    """1 and true are equal in Python, but not to an expression."""
    text = (f"{A}.x == 1",)
    number, flag = (Device(name="d", attributes=(("a.com/x", value),)) for value in (1, True))
    assert selector_verdict(text, number, DRIVER) is True
    assert selector_verdict(text, flag, DRIVER) is not True
    in_list = attrs.evolve(number, attributes=(("a.com/x", (1,)),))
    flag_in_list = attrs.evolve(number, attributes=(("a.com/x", (True,)),))
    exists = (f"{A}.x.exists(one, one == 1)",)
    assert selector_verdict(exists, in_list, DRIVER) is True
    assert selector_verdict(exists, flag_in_list, DRIVER) is not True


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        (f"{A}.type == 'gpu' && device.driver == 'a.com'", {"a.com/type"}),
        (f"'x' in {A} && has(device.attributes.b.y)", {"a.com/x", "b/y"}),
        (f"{A}.size() == 1", None),
        ("device.attributes.exists(domain, true)", None),
        (f"[1].all(device, {A}.x == device)", None),
    ],
)
def test_what_an_expression_reads(text: str, reads: set[str] | None) -> None:
    """Serial numbers that no selector reads keep no two devices apart."""
    found = selector_reads(text)
    assert (None if found is None else found.attributes) == reads
