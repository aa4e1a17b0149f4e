"""What gangs say about types of GPUs: read from PodGroups and annotations, bad input told."""

from __future__ import annotations

import json

import pytest

from gpusched.api.devices.gpu_types import (
    FIELD,
    NO_GPU_TYPE_REQUEST,
    GpuTypeRequest,
    gpu_type_of,
    named_value,
    names_gpu_type,
    parse_gpu_types,
)
from gpusched.api.gang.decode import POD_GROUPS
from gpusched.api.meta.gpu_resources import DEFAULT_GPU_RESOURCES
from gpusched.api.meta.wire import WorkloadAnnotations
from gpusched.api.pod.gang_annotations import read_gang_annotations
from gpusched.testing.given import Given


def parse(value: object) -> GpuTypeRequest:
    """The request in a PodGroup whose field has this value."""
    return parse_gpu_types(json.dumps(value).encode(), field=FIELD)


def test_speeds_are_numbers_or_texts_and_exact() -> None:
    # given a speed as a number and one as a text
    request = parse({"speeds": {"h100": 1.0, "a100": "0.45", "b200": 3}})
    # then both are whole thousandths, sorted by name
    assert request.speeds == (("a100", 450), ("b200", 3_000), ("h100", 1_000))
    assert request.same_type is None
    assert request.error == ""


def test_same_type_is_said_not_said_or_denied() -> None:
    assert parse({"sameType": True}).same_type is True
    assert parse({"sameType": False}).same_type is False
    assert parse({}) == parse(None) == NO_GPU_TYPE_REQUEST


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ({"speeds": {"h100": 0}}, "speeds: h100: '0' is not above zero; leave out a type"),
        ({"speeds": {"h100": "0.0"}}, "is not above zero"),
        ({"speeds": {"h100": -1}}, "'-1' is not above zero"),
        ({"speeds": {"h100": "fast"}}, "'fast' is no number; a speed is a number from 0.001"),
        ({"speeds": {"h100": "nan"}}, "is no number"),
        ({"speeds": {"h100": "1" * 500}}, "is no number"),
        ({"speeds": {"h100": "1" * 5_000}}, "has 5,024 bytes, more than 4,096"),
        ({"speeds": {"h100": 1e9}}, "is out of bounds"),
        ({"speeds": {"h100": 0.0001}}, "is out of bounds"),
        ({"speeds": {"h100": True}}, "speeds[...]: Expected"),
        ({"speeds": {"h100": None}}, "speeds[...]: Expected"),
        ({"speeds": {}}, "names no GPU type"),
        ({"speeds": {"": 1}}, "'' is no GPU type"),
        ({"speeds": {"h 100": 1}}, "'h 100' is no GPU type"),
        ({"speeds": {"H100": 1, "h100": 2}}, "h100 is named twice"),
        ({"speeds": {f"t{n}": 1 for n in range(33)}}, "names 33 GPU types, more than 32"),
        ({"sameType": "yes"}, "sameType: Expected bool"),
        ({"sametype": True}, "unknown field"),
        ([1], "Expected object"),
        ("sameType", "Expected object"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_the_field(value: object, part: str) -> None:
    request = parse(value)
    assert request.error.startswith("spec.gpuTypes")
    assert part in request.error
    assert request == GpuTypeRequest(error=request.error)


@pytest.mark.parametrize(
    ("name", "product", "means"),
    [
        ("h100", "NVIDIA-H100-80GB-HBM3", True),
        ("H100", "h100", True),
        ("a100", "NVIDIA-A100-SXM4-40GB", True),
        ("a100-sxm4", "NVIDIA-A100-SXM4-40GB", True),
        ("NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB", True),
        ("v100", "Tesla V100_SXM2", True),
        ("100", "NVIDIA-A100-SXM4-40GB", False),
        ("h10", "NVIDIA-H100-80GB-HBM3", False),
        ("h100", "", False),
    ],
)
def test_a_name_means_products_of_whose_words_it_is_one(
    name: str, product: str, means: bool
) -> None:
    assert names_gpu_type(name, product) is means


def test_the_most_exact_name_counts() -> None:
    speeds = (("a100", 450), ("a100-sxm4-80gb", 600))
    assert named_value(speeds, "NVIDIA-A100-SXM4-80GB") == ("a100-sxm4-80gb", 600)
    assert named_value(speeds, "NVIDIA-A100-SXM4-40GB") == ("a100", 450)
    assert named_value(speeds, "NVIDIA-H100") is None


def test_a_nodes_type_is_its_product_label() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert gpu_type_of(labels, DEFAULT_GPU_RESOURCES) == "NVIDIA-H100-80GB-HBM3"
    assert gpu_type_of({"amd.com/gpu.product-name": "MI300X"}, DEFAULT_GPU_RESOURCES) == "MI300X"
    assert gpu_type_of({}, DEFAULT_GPU_RESOURCES) == ""


def test_a_pod_group_with_a_bad_speed_stays_one_and_says_so() -> None:
    # given a PodGroup whose speeds cannot be read, among fields that can
    raw = json.dumps(
        {
            "metadata": {"name": "g", "namespace": "default", "uid": "u", "resourceVersion": "1"},
            "spec": {"minMember": 2, "gpuTypes": {"speeds": {"h100": 0}}},
        }
    ).encode()
    group = POD_GROUPS.entity_of(raw)
    # then it is a PodGroup all the same
    assert group.min_member == 2
    # and its gang is told the reason
    c = Given().group("g", gpu_types=group.terms.gpu_types).pods("g", 1, group="g", gpus=1)
    (gang,) = c.cache.take_snapshot(now=c.now).gangs
    assert gang.error == ("InvalidSpec", group.terms.gpu_types.error)
    assert "not above zero" in gang.error[1]


def test_the_annotation_stands_in_for_the_field() -> None:
    notes = WorkloadAnnotations(gpu_types='{"sameType": true, "speeds": {"h100": 1}}')
    hints = read_gang_annotations(notes)
    assert hints.gpu_types == GpuTypeRequest(same_type=True, speeds=(("h100", 1_000),))
    # a bad one names the annotation and rejects no pod
    bad = read_gang_annotations(WorkloadAnnotations(gpu_types="h100"))
    assert bad.gpu_types.error.startswith("metadata.annotations[gpusched.io/gpu-types]: ")


def test_a_pods_annotation_reaches_its_gang() -> None:
    request = GpuTypeRequest(same_type=True)
    notes = WorkloadAnnotations(gpu_types='{"sameType": true}')
    c = Given().pod("lone", gpus=1, hints=read_gang_annotations(notes))
    (gang,) = c.cache.take_snapshot(now=c.now).gangs
    assert gang.terms.gpu_types == request
