"""Requests by the rules of Kubernetes, and one object for all pods that are equal."""

from __future__ import annotations

import copy
import gc

import msgspec
import pytest

from gpusched.api.meta.identity import InvalidObject
from gpusched.api.meta.resources import Resources
from gpusched.api.pod import wire as pod_wire
from gpusched.api.pod.pod_class import PodClasses
from gpusched.base import limits

pytestmark = pytest.mark.long


def spec_of(**parts):
    """A spec as the parser leaves it."""
    return msgspec.json.decode(msgspec.json.encode(parts), type=pod_wire.PodSpec)


def asks(cpu=None, *, always=False, limits=None, **more):
    """A container that asks for so many milli-cores."""
    requests = {**more, **({} if cpu is None else {"cpu": f"{cpu}m"})}
    made = {"resources": {"requests": requests, "limits": limits or {}}}
    return {**made, "restartPolicy": "Always"} if always else made


def requests(**parts):
    made = dict(PodClasses().class_of(spec_of(**parts)).requests.items)
    assert made.pop("pods") == 1
    return made


CASES = [
    ("nothing", {}, {}),
    ("sum of containers", {"containers": [asks(100), asks(200)]}, {"cpu": 300}),
    (
        "largest init container",
        {"containers": [asks(100)], "initContainers": [asks(500), asks(50)]},
        {"cpu": 500},
    ),
    (
        "sidecars stay",
        {"containers": [asks(100)], "initContainers": [asks(30, always=True), asks(20)]},
        {"cpu": 130},
    ),
    (
        "an init container runs beside the sidecars before it only",
        {
            "containers": [asks(1)],
            "initContainers": [asks(10, always=True), asks(100), asks(50, always=True)],
        },
        {"cpu": 110},
    ),
    (
        "sidecars alone",
        {"initContainers": [asks(10, always=True), asks(20, always=True)]},
        {"cpu": 30},
    ),
    (
        "overhead on top of the larger",
        {"containers": [asks(1)], "initContainers": [asks(9)], "overhead": {"cpu": "1m"}},
        {"cpu": 10},
    ),
    (
        "a limit where there is no request",
        {"containers": [asks(100, limits={"cpu": "1", "memory": "1Ki"})]},
        {"cpu": 100, "memory": 1024},
    ),
    (
        "pod level replaces cpu, memory, hugepages and nothing else",
        {
            "containers": [asks(100, memory="1", **{"nvidia.com/gpu": "2"})],
            "resources": {
                "requests": {"cpu": "1", "hugepages-2Mi": "2Mi", "nvidia.com/gpu": "9"},
                "limits": {"cpu": "4", "memory": "8"},
            },
            "overhead": {"cpu": "1m"},
        },
        {"cpu": 1001, "memory": 1, "hugepages-2Mi": 2**21, "nvidia.com/gpu": 2000},
    ),
    (
        "a pod-level limit where nobody asks",
        {"containers": [asks(1)], "resources": {"limits": {"memory": "8"}}},
        {"cpu": 1, "memory": 8},
    ),
    ("zero is nothing", {"containers": [asks(0, **{"nvidia.com/gpu": "0"})]}, {}),
]


@pytest.mark.parametrize(
    ("parts", "expected"), [each[1:] for each in CASES], ids=[each[0] for each in CASES]
)
def test_requests(parts, expected):
    """What kube-scheduler would charge is what we charge."""
    assert requests(**parts) == expected


def test_sum_beyond_belief():
    """Quantities that are fine alone may still add up to more than any machine has."""
    half = {"resources": {"requests": {"memory": str(limits.QUANTITY_MAX // 2 + 1)}}}
    with pytest.raises(InvalidObject, match="the sum of memory is more than any machine has"):
        requests(containers=[half, half])


def test_two_kinds_of_gpu_are_refused():
    """No layout can promise both together."""
    both = asks(**{"nvidia.com/gpu": "1", "amd.com/gpu": "1"})
    with pytest.raises(InvalidObject, match="asks for both amd"):
        requests(containers=[both])


def test_equal_bytes_and_equal_content_share_one_object():
    """``1Gi`` and ``1024Mi``, and tolerations in another order, are the same class."""
    table = PodClasses()
    one = {
        "containers": [asks(1000, memory="1Gi")],
        "tolerations": [{"key": "a", "operator": "Exists"}, {"key": "b", "value": "x"}],
    }
    other = {
        "containers": [{"resources": {"requests": {"memory": "1024Mi", "cpu": "1"}}}],
        "tolerations": [
            {"key": "b", "operator": "Equal", "value": "x"},
            {"key": "a", "operator": "Exists"},
        ],
        "priority": 5,
        "nodeName": "n1",
    }
    first = table.class_of(spec_of(**one))
    assert table.class_of(spec_of(**one)) is first
    assert table.class_of(spec_of(**other)) is first
    assert PodClasses().class_of(spec_of(**other)).digest == first.digest


@pytest.mark.parametrize(
    "change",
    [
        {"nodeSelector": {"a": "b"}},
        {"tolerations": [{"operator": "Exists"}]},
        {"overhead": {"cpu": "1"}},
        {"initContainers": [asks(5000)]},
        {"resourceClaims": [{"name": "x"}]},
    ],
)
def test_another_rule_is_another_class(change):
    """Whatever placement reads tells two classes apart."""
    table = PodClasses()
    plain = {"containers": [asks(1)]}
    assert (
        table.class_of(spec_of(**plain)).digest != table.class_of(spec_of(**plain, **change)).digest
    )


def test_a_container_is_not_an_init_container():
    """The same bytes in another place are another spec."""
    table = PodClasses()
    two = table.class_of(spec_of(containers=[asks(1), asks(1)]))
    one = table.class_of(spec_of(containers=[asks(1)], initContainers=[asks(1)]))
    assert (two.requests.get("cpu"), one.requests.get("cpu")) == (2, 1)


def test_memory_is_bounded(monkeypatch):
    """A tenant that writes a new spec each time costs bounded memory; living classes stay."""
    monkeypatch.setattr("gpusched.api.pod.pod_class.CLASS_BYTES_MAX", 20_000)
    table = PodClasses()
    kept = table.class_of(spec_of(containers=[asks(1)]))
    for number in range(2, 500):
        table.class_of(spec_of(containers=[asks(number)]))
    gc.collect()
    assert len(table._by_bytes) < 40
    assert len(table._by_digest) < 40
    assert table.class_of(spec_of(containers=[asks(1)])) is kept


def test_parsing_changes_nothing(pod):
    """Reading a spec twice gives equal content."""
    spec = copy.deepcopy(pod["spec"])
    assert PodClasses().class_of(spec_of(**spec)).requests == Resources.of(
        {"cpu": 7500, "memory": 2**36, "nvidia.com/gpu": 4000, "pods": 1}
    )
