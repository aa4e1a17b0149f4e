"""What a gang says about the devices of all its members, from the wire to the gang."""

from __future__ import annotations

import json

import pytest

from gpusched.api.devices.device_match import FIELD, DeviceMatchRequest, parse_device_match
from gpusched.api.meta.wire import WorkloadAnnotations
from gpusched.api.pod.gang_annotations import read_gang_annotations
from gpusched.testing.given import Given


def parse(value):
    """A request as it stands in a PodGroup."""
    return parse_device_match(json.dumps(value).encode(), field=FIELD)


def test_all_of_it_is_read():
    said = {"matchAttribute": "dra.net/rail", "requests": ["nic", "gpu"], "sameType": True}
    assert parse(said) == DeviceMatchRequest(
        match_attribute="dra.net/rail", requests=("gpu", "nic"), same_type=True
    )
    for nothing in (None, {}, {"sameType": False}):
        assert parse(nothing) == DeviceMatchRequest()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"matchAttribute": "rail"}, "is no attribute with its domain"),
        ({"matchAttribute": 'a"]/b'}, "is no attribute with its domain"),
        ({"matchAttribute": 7}, "matchAttribute: Expected"),
        ({"requests": ["nic"]}, "say of what"),
        ({"sameType": True, "requests": ["N!"]}, "is no request of a claim"),
        ({"sameType": True, "requests": [f"r{n}" for n in range(33)]}, "more than 32"),
        ({"rail": "a"}, "rail"),
        ("x", "Expected"),
        ({"matchAttribute": "a/" + "b" * 9_999}, "more than 4,096"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_field(said, why):
    request = parse(said)
    assert request.error.startswith("spec.devices")
    assert why in request.error


def test_a_gang_whose_wish_cannot_be_read_is_told_and_waits():
    c = Given().group("g", devices=parse({"matchAttribute": "rail"})).pods("g", 1, group="g")
    (gang,) = c.cache.take_snapshot(now=c.now).gangs
    assert gang.error[0] == "InvalidSpec"
    assert "spec.devices.matchAttribute" in gang.error[1]


def test_an_annotation_says_the_same():
    notes = WorkloadAnnotations(devices='{"matchAttribute": "dra.net/rail"}')
    assert read_gang_annotations(notes).devices.match_attribute == "dra.net/rail"
