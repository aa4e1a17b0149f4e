"""Bodies that name a field twice, and bodies that nobody understands."""

from __future__ import annotations

import json

import pytest

from gpusched.devcluster.apiserver.writing.bodies import repeated_fields

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
TWICE = b"""{"metadata": {"name": "a", "name": "b"},
  "spec": {"containers": [{"name": "c", "image": "i", "image" : "j"}], "extra": 1}}"""


async def test_strict_bodies_name_fields_once(http):
    """Strict refuses repeated fields by their paths, before unknown ones."""
    reply = await http.post(f"{PODS}?fieldValidation=Strict", TWICE)
    assert (reply.code, reply.message) == (
        400,
        (
            'Pod in version "v1" cannot be handled as a Pod: strict decoding error: duplicate field '
            '"metadata.name", duplicate field "spec.containers[0].image", unknown field "spec.extra"'
        ),
    )


async def test_the_last_one_counts_and_a_warning_tells(http):
    """Without Strict the last value of a repeated field is taken; Ignore says nothing of it."""
    reply = await http.post(f"{PODS}?dryRun=All", TWICE)
    assert (reply.code, reply.body["metadata"]["name"]) == (201, "b")
    assert reply.headers.getall("Warning") == [
        '299 - "duplicate field \\"metadata.name\\""',
        '299 - "duplicate field \\"spec.containers[0].image\\""',
        '299 - "unknown field \\"spec.extra\\""',
    ]
    reply = await http.post(f"{PODS}?dryRun=All&fieldValidation=Ignore", TWICE)
    assert "Warning" not in reply.headers


async def test_patches_that_name_fields_twice(http):
    """A strict merge patch with a repeated field is an invalid patch."""
    await http.post(MAPS, {"metadata": {"name": "c"}, "data": {"k": "0"}})
    twice = b'{"data":{"k":"1","k":"2"}}'
    for kind in ("merge-patch+json", "strategic-merge-patch+json"):
        reply = await http.patch(f"{MAPS}/c?fieldValidation=Strict", twice, kind)
        assert reply.code == 422
        assert reply.message.endswith(': strict decoding error: duplicate field "data.k"')


@pytest.mark.parametrize(
    ("raw", "paths"),
    [
        (b'{"a":"x\\":","b":{"a":1}}', []),
        (b'{"a":1,"b":[{"a":1},{"a":1,"a":2}]}', ["b[1].a"]),
        (b'{"a"\n:1,"a":2,"a":3}', ["a"]),
        (b'{"a\\\\":1,"a\\\\":2}', ["a\\"]),
    ],
)
def test_how_they_are_found(raw, paths):
    """Keys are told from texts that look like keys, however they are spelled."""
    assert repeated_fields(raw, json.loads(raw)) == [f'duplicate field "{p}"' for p in paths]


@pytest.mark.parametrize(
    ("raw", "why", "shown"),
    [
        (b"", "unexpected end of JSON input", "<empty>"),
        (b"[]", "json: cannot unmarshal array into Go value of type struct", "5b5d"),
        (
            b'{"metadata": {"name": "abcdefgh"}, ',
            "unexpected end",
            '{"metadata": {"name": "abcdefg ...',
        ),
    ],
)
async def test_bodies_that_nobody_understands(http, raw, why, shown):
    """The answer shows the beginning of the body: text of what looks like an object, else hex."""
    reply = await http.send("POST", PODS, raw)
    assert reply.code == 400
    assert f"json parse error: {why}" in reply.message
    assert reply.message.endswith(f" ({shown})")


async def test_patches_that_are_no_json(http):
    """A patch that is no JSON is told as a patch, strategic ones without a head."""
    await http.post(MAPS, {"metadata": {"name": "c"}})
    reply = await http.patch(f"{MAPS}/c", b"{")
    assert (reply.code, reply.message) == (
        400,
        "error decoding patch: unexpected end of JSON input",
    )
    reply = await http.patch(f"{MAPS}/c", b"{", "strategic-merge-patch+json")
    assert reply.message == "unexpected end of JSON input"
    reply = await http.patch(f"{MAPS}/c?fieldManager=m", b"a: [", "apply-patch+yaml")
    assert reply.message == (
        "error decoding YAML: error converting YAML to JSON: "
        "yaml: line 1: did not find expected node content"
    )


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"{bad", "invalid character 'b' looking for beginning of object key string"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":}', "invalid character '}' looking for beginning of value"),
        (b'{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
        (b'{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        (b'{"a":[1 2]}', "invalid character '2' after array element"),
        (b'{"a":1}x', "invalid character 'x' after top-level value"),
        (b"not json", "invalid character 'o' in literal null (expecting 'u')"),
        (b'{"a":tru}', "invalid character '}' in literal true (expecting 'e')"),
        (b"{'a':1}", "invalid character '\\'' looking for beginning of object key string"),
        (b'{"t":"x", "a":<}', "invalid character '<' looking for beginning of value"),
    ],
)
async def test_where_a_text_stops_being_json(http, raw, why):
    """What is wrong with a body is told by the character and what was expected there."""
    await http.post(MAPS, {"metadata": {"name": "c"}})
    reply = await http.patch(f"{MAPS}/c", raw)
    assert (reply.code, reply.message) == (400, f"error decoding patch: {why}")
