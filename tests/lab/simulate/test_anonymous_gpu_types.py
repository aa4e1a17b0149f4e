"""Names of GPU types mean the same products in an anonymised snapshot, and tell no tenant's word."""

from __future__ import annotations

import json

import pytest

from gpusched.api.devices.gpu_types import named_value, names_gpu_type, parse_gpu_types
from gpusched.io.recordings.pseudonyms import Pseudonyms

PRODUCT = "nvidia.com/gpu.product"
ANNOTATION = "gpusched.io/gpu-types"
PRODUCTS = (
    "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "NVIDIA-L40S",
    "Tesla-V100-SXM2-32GB", "Tesla-T4", "AMD-Instinct-MI300X", "NVIDIA-GH200-480GB", "NVIDIA-B200",
    "NVIDIA-GeForce-RTX-4090", "NVIDIA-RTX-6000-Ada-Generation", "HL-225", "ACME_X9-Secret", "ACME-H100",
)  # fmt: skip
"""Labels as device plugins write them, and two that no vendor does."""
NAMES = (
    "h100", "H100", "a100", "a100-sxm4-40gb", "l40s", "v100", "t4", "MI300X", "gh200", "b200", "rtx-4090",
    "80gb", "x9", "acme-x9", "Secret", "acme", "acme-h100", "rtx-6000-ada", "1g.5gb", "hl-225",
)  # fmt: skip
"""What gangs call them."""


@pytest.fixture
def pseudonyms():
    """Pseudonyms of one recording."""
    return Pseudonyms(b"k" * 16)


def label(pseudonyms, product):
    """The product label of a node in the recording."""
    node = {"kind": "Node", "metadata": {"labels": {PRODUCT: product}}}
    return pseudonyms.of_object(node)["metadata"]["labels"][PRODUCT]


def in_spec(pseudonyms, speeds):
    """The speeds of a PodGroup in the recording."""
    group = {"kind": "PodGroup", "spec": {"gpuTypes": {"sameType": True, "speeds": speeds}}}
    found = pseudonyms.of_object(group)["spec"]["gpuTypes"]
    assert found["sameType"] is True
    return found["speeds"]


def in_annotation(pseudonyms, speeds):
    """The same of an annotation."""
    note = json.dumps({"speeds": speeds})
    pod = {"kind": "Pod", "metadata": {"annotations": {ANNOTATION: note}}}
    told = pseudonyms.of_object(pod)["metadata"]["annotations"][ANNOTATION]
    assert parse_gpu_types(told.encode(), field="f").error == ""
    return json.loads(told)["speeds"]


@pytest.mark.parametrize("read", [in_spec, in_annotation])
def test_names_mean_the_products_that_they_meant(pseudonyms, read):
    """Each name against each product, before and after."""
    for name in NAMES:
        (after,) = read(pseudonyms, {name: "0.5"})
        for product in PRODUCTS:
            shown = label(pseudonyms, product)
            assert names_gpu_type(after, shown) == names_gpu_type(name, product), (name, product)


def test_the_speed_of_each_product_stays(pseudonyms):
    """Of several names the most exact one counts, in the recording too."""
    speeds = {"a100": 450, "a100-sxm4-40gb-mig-1g.5gb": 60, "h100": 1000, "acme-x9": 300}
    after = in_spec(pseudonyms, speeds)
    for product in PRODUCTS:
        before = named_value(tuple(speeds.items()), product)
        found = named_value(tuple(after.items()), label(pseudonyms, product))
        assert (found and found[1]) == (before and before[1]), product


@pytest.mark.parametrize("read", [in_spec, in_annotation])
def test_a_tenants_word_is_not_left(pseudonyms, read):
    """What no vendor calls its GPUs is replaced, in labels and in names."""
    told = json.dumps(read(pseudonyms, {"zqxj-h100": 1, "acme": 2}))
    assert "zqxj" not in told
    assert "acme" not in told
    assert "acme" not in label(pseudonyms, "ACME-H100").lower()


def test_rules_about_products_select_the_same_nodes(pseudonyms):
    """Selectors and affinities name products by the label."""
    for product in PRODUCTS:
        rule = {"key": PRODUCT, "operator": "In", "values": [product]}
        pod = {"kind": "Pod", "spec": {"affinity": {"terms": [{"matchExpressions": [rule]}]}}}
        (term,) = pseudonyms.of_object(pod)["spec"]["affinity"]["terms"]
        assert term["matchExpressions"][0]["values"] == [label(pseudonyms, product)]
        pod = {"kind": "Pod", "spec": {"nodeSelector": {PRODUCT: product}}}
        selector = pseudonyms.of_object(pod)["spec"]["nodeSelector"]
        assert selector == {PRODUCT: label(pseudonyms, product)}
