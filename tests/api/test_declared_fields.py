"""A field of PodGroup that the CRD declares is read from the wire, and terms reach the gang."""

from __future__ import annotations

import attrs
import msgspec

from gpusched.api.devices.device_match import DeviceMatchRequest
from gpusched.api.devices.gpu_types import GpuTypeRequest
from gpusched.api.gang.pod_group import GangTerms
from gpusched.api.gang.wire import PodGroupSpec
from gpusched.testing.given import Given
from tests.behaviour.fuzz.crd_fields import spec_schema


def test_the_wire_reads_each_field_that_the_crd_declares():
    """No field is declared for authors and then not read, none read that the server drops."""
    read = {each.encode_name for each in msgspec.structs.fields(PodGroupSpec)}
    assert read == set(spec_schema("podgroups")["properties"])


def test_terms_reach_the_gang_as_the_pod_group_has_them():
    """Only whether it may be evicted is decided on the way: its priority class may say so."""
    types = GpuTypeRequest(same_type=True)
    match = DeviceMatchRequest(match_attribute="a.b/c")
    other = {
        bool: True, int: 7, str: "Group", GpuTypeRequest: types, DeviceMatchRequest: match,
    }  # fmt: skip
    terms = {
        each.name: other.get(type(each.default), False)
        for each in attrs.fields(GangTerms)
        if each.name != "preemptible"
    }
    c = Given().group("g", preemptible=False, **terms)
    (gang,) = c.cache.take_snapshot(now=c.now).gangs
    assert gang.terms == GangTerms(preemptible=False, **terms)
