"""Protobuf request bodies: what kubectl 1.32 sent, and what must never crash.

``data/kubectl-protobuf.json`` holds bodies captured from kubectl with their meaning, read and
compared by hand with the commands.
"""

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.devcluster.schema.protobuf import MAGIC, ProtobufError, decode_body
from gpusched.devcluster.schema.schema import load_builtin

CAPTURED = json.loads((Path(__file__).parent / "data/kubectl-protobuf.json").read_text())


def varint(number):
    number &= 2**64 - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def num(field, value):
    return varint(field << 3) + varint(value)


def data(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def body(api_version, kind, raw):
    return MAGIC + data(1, data(1, api_version) + data(2, kind)) + data(2, raw)


@pytest.mark.parametrize("case", [pytest.param(c, id=c["command"]) for c in CAPTURED])
def test_bodies_of_kubectl(case):
    """What kubectl sends is the object its command names, and fits the kind's schema."""
    obj = decode_body(base64.b64decode(case["body"]))
    assert obj == case["means"]
    group, _, version = obj["apiVersion"].rpartition("/")
    schema = load_builtin(group, version, obj["kind"])
    assert schema.strict_errors(obj) == []
    assert schema.decode_error(obj) is None


def test_types_with_their_own_json_form():
    """Times, micro times, big and negative numbers, int-or-string, quantities, bytes."""
    when = num(1, 1_700_000_000) + num(2, 123_456_789)
    meta = data(1, "l") + data(8, when)
    lease = data(1, meta) + data(2, data(1, "me") + num(2, -3) + data(4, when))
    assert decode_body(body("coordination.k8s.io/v1", "Lease", lease)) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l", "creationTimestamp": "2023-11-14T22:13:20Z"},
        "spec": {
            "holderIdentity": "me",
            "leaseDurationSeconds": -3,
            "renewTime": "2023-11-14T22:13:20.123456Z",
        },
    }


def test_zeros_that_were_meant():
    """A grace period of 0 and 0 replicas stay; an empty text or generation 0 does not."""
    options = decode_body(body("v1", "DeleteOptions", num(1, 0) + data(4, "")))
    assert options == {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    pod = decode_body(body("v1", "Pod", data(1, data(1, "p") + data(5, "") + num(7, 0))))
    assert pod["metadata"] == {"name": "p"}


def test_inlined_structures():
    """A volume's source stands beside its name."""
    source = data(2, b"")
    volume = data(1, "v") + data(2, source)
    pod = decode_body(body("v1", "Pod", data(2, data(1, volume))))
    assert pod["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"{}", "does not appear to be a protobuf message"),
        (MAGIC + b"\x0a\xff", "unexpected end"),
        (body("v1", "Nope", b""), 'no kind "Nope" is registered'),
        (body("v1", "Pod", b"\x0a\x05ab"), "unexpected end"),
        (body("v1", "Pod", b"\x0b"), "illegal wireType 3"),
        (body("v1", "Pod", data(1, data(1, b"\xff"))), "not valid UTF-8"),
        (body("v1", "Pod", num(1, 5)), "wrong wireType"),
        (body("v1", "Pod", b"\x0a" + b"\xff" * 11), "longer than ten bytes"),
    ],
)
def test_broken_bodies(raw, why):
    """A body that is cut or is something else is refused with a reason."""
    with pytest.raises(ProtobufError, match=why):
        decode_body(raw)


@given(st.sampled_from(CAPTURED), st.data())
def test_damaged_bodies_never_crash(case, source):
    """Any damage ends in an object or in a ProtobufError."""
    raw = bytearray(base64.b64decode(case["body"]))
    at = source.draw(st.integers(4, len(raw) - 1))
    raw[at : at + source.draw(st.integers(0, 3))] = source.draw(st.binary(max_size=4))
    try:
        obj = decode_body(bytes(raw))
    except ProtobufError:
        return
    assert json.loads(json.dumps(obj)) == obj
