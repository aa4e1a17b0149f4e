"""Device selectors: what compiles, what has no value, what costs too much."""

from __future__ import annotations

import pytest

from gpusched.cel.device_selectors import (
    DeviceView,
    SelectorFailed,
    SelectorInvalid,
    compile_selector,
    make_device_view,
    selector_complaint,
)

NVIDIA = "device.attributes['gpu.nvidia.com']"
AMOUNT = "device.capacity['gpu.nvidia.com'].memory"
LOOP = "[1,2,3,4,5,6,7,8,9,10].all("


@pytest.fixture
def gpu() -> DeviceView:
    attributes = {
        "gpu.nvidia.com/type": "gpu",
        "gpu.nvidia.com/index": 3,
        "resource.kubernetes.io/pcieRoot": "pci0000:01",
        "gpu.nvidia.com/models": ("a", "b"),
    }
    capacity = {"gpu.nvidia.com/memory": 80 * 2**30 * 10**9}
    return make_device_view("gpu.nvidia.com", attributes, capacity, shareable=False)


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        (f"{NVIDIA}.type == 'gpu'", True),
        (f"{NVIDIA}.type == 'mig'", False),
        ("device.attributes['of.nobody'].size() == 0", True),
        ("'of.nobody' in device.attributes", False),
        (f"has({NVIDIA}.serial)", False),
        (f"{NVIDIA}.?serial.orValue('none') == 'none'", True),
        (f"{NVIDIA}.models.includes('b') && {NVIDIA}.type.includes('gpu')", True),
        (f"{AMOUNT}.compareTo(quantity('80Gi')) == 0", True),
        (f"{AMOUNT}.isGreaterThan(quantity('80G')) && {AMOUNT} == quantity('80Gi')", True),
        ("semver('1.10.0').isGreaterThan(semver('1.9.0'))", True),
        ("device.allowMultipleAllocations", False),
    ],
)
def test_what_is_selected(gpu: DeviceView, text: str, selected: bool) -> None:
    """A domain that a device lacks is an empty map; a list includes its elements."""
    assert compile_selector(text).matches(gpu) is selected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{NVIDIA}.serial == 'a'", "no such key: serial"),
        ("device.attributes['of.nobody'].serial == 'a'", "no such key: serial"),
        (f"{NVIDIA}.type > 2", "no such overload"),
        (
            f"{LOOP}a,{LOOP}b,{LOOP}c,{LOOP}d,{LOOP}e,a+b+c+d+e>0)))))",
            "operation cancelled: actual cost limit exceeded",
        ),
    ],
)
def test_what_has_no_value(gpu: DeviceView, text: str, why: str) -> None:
    """A name that a device lacks, a wrong type and too high a cost end the evaluation."""
    selector = compile_selector(text)
    with pytest.raises(SelectorFailed, match=why):
        selector.matches(gpu)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("device.driver", "must evaluate to bool"),
        (AMOUNT, "must evaluate to bool"),
        ("device.nope == 1", "undefined field 'nope'"),
        ("gpu == 1", "undeclared reference to 'gpu'"),
        (f"{AMOUNT} == 3", "no matching overload for '_==_' applied to '(kubernetes.Quantity"),
    ],
)
def test_what_is_no_selector(text: str, why: str) -> None:
    """The API server's complaint and the exception say the same."""
    assert why in selector_complaint(text)
    with pytest.raises(SelectorInvalid) as caught:
        compile_selector(text)
    assert why in str(caught.value)


def test_length_is_bounded() -> None:
    """An expression of more than 10 KiB is not compiled."""
    with pytest.raises(SelectorInvalid, match="has 10241 bytes, more than 10240"):
        compile_selector("true" + " " * (10 * 1024 - 3))
