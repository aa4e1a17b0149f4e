"""Patches that cannot be applied, or leave what cannot be decoded."""

from __future__ import annotations

import pytest

MAP = "/api/v1/namespaces/default/configmaps/cm"
POD = "/api/v1/namespaces/default/pods/p"
WENT_WRONG = "the server rejected our request due to an error in our request"


@pytest.fixture
async def things(http):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}, "data": {"a": "1"}}
    await http.post("/api/v1/namespaces/default/configmaps", body)
    await http.create_pod("p")
    return http


@pytest.mark.parametrize(
    "op",
    [
        {"op": "spin", "path": "/data/a"},
        {"op": "add", "path": "/no/where", "value": "1"},
        {"op": "remove", "path": "/data/zzz"},
        {"op": "replace", "path": "/data/zzz", "value": "1"},
        {"op": "copy", "from": "/data/zzz", "path": "/data/b"},
        {"op": "move", "from": "/data/zzz", "path": "/data/b"},
        {"op": "test", "path": "/data/a", "value": "9"},
        {"op": "remove"},
    ],
)
async def test_operations_that_fail(things, op):
    """Whatever goes wrong inside a JSON patch is one and the same 422 without details."""
    reply = await things.patch(MAP, [op], "json-patch+json")
    assert (reply.code, reply.message, reply.body["details"]) == (422, WENT_WRONG, {})


async def test_patches_of_the_wrong_form(things):
    """A patch that is no list or no map is a 400 that names the type that was expected."""
    reply = await things.patch(MAP, {"a": 1}, "json-patch+json")
    assert (reply.code, reply.message) == (
        400,
        (
            "error decoding patch: json: cannot unmarshal object into Go value of type "
            "[]handlers.jsonPatchOp"
        ),
    )
    reply = await things.patch(MAP, [1])
    assert reply.message == (
        "error decoding patch: json: cannot unmarshal array into Go value of type "
        "map[string]interface {}"
    )
    reply = await things.patch(MAP, [1], "strategic-merge-patch+json")
    assert reply.message == (
        "json: cannot unmarshal array into Go value of type map[string]interface {}"
    )


async def test_too_many_operations(things):
    """Ten thousand operations are the most."""
    ops = [{"op": "test", "path": "/data/a", "value": "1"}] * 10_001
    reply = await things.patch(MAP, ops, "json-patch+json")
    assert reply.code == 413
    assert reply.message == (
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, "
        "got 10001"
    )


async def test_a_patch_that_leaves_a_wrong_type(things):
    """The answer is 422, names no kind, and shows what was patched."""
    reply = await things.patch(MAP, {"data": {"a": 5}})
    assert reply.code == 422
    assert reply.message.startswith(' "" is invalid: patch: Invalid value: "{')
    assert "cannot unmarshal number into Go struct field ConfigMap.data of type" in reply.message
    assert set(reply.body["details"]) == {"causes"}
    wrong = {"spec": {"activeDeadlineSeconds": "x"}}
    reply = await things.patch(POD, wrong, "strategic-merge-patch+json")
    assert reply.message == (
        ' "" is invalid: patch: Invalid value: "map[spec:map[activeDeadlineSeconds:x]]": '
        "cannot convert string to int64"
    )


async def test_unknown_fields_of_strict_patches(things):
    """Strict validation refuses them as an invalid patch, by default they are dropped."""
    odd = {"spec": {"nonsense": 1}}
    reply = await things.patch(f"{POD}?fieldValidation=Strict", odd, "strategic-merge-patch+json")
    assert (reply.code, reply.message) == (
        422,
        (
            ' "" is invalid: patch: Invalid value: "map[spec:map[nonsense:1]]": '
            'strict decoding error: unknown field "spec.nonsense"'
        ),
    )
    ops = [{"op": "add", "path": "/data/b", "value": "1", "extra": True}]
    reply = await things.patch(f"{MAP}?fieldValidation=Strict", ops, "json-patch+json")
    assert reply.code == 422
    assert 'json patch unknown field "[0].extra"' in reply.message
    assert (await things.patch(POD, odd)).code == 200


async def test_applied_fields_that_no_schema_knows(things):
    """Real servers answer 500 without a reason."""
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}, "extra": 1}
    reply = await things.patch(f"{MAP}?fieldManager=m", config, "apply-patch+yaml")
    assert reply.code == 500
    assert "reason" not in reply.body
    assert reply.message == (
        "failed to create typed patch object (/cm; /v1, Kind=ConfigMap): "
        ".extra: field not declared in schema"
    )


async def test_metadata_that_patches_cannot_change(things):
    """Times of creation and generations are ignored, marks of deletion refused."""
    before = (await things.get(POD)).body["metadata"]
    meta = {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 77}
    after = (await things.patch(POD, {"metadata": meta})).body["metadata"]
    assert after["creationTimestamp"] == before["creationTimestamp"]
    assert after["generation"] == before["generation"]
    assert after["resourceVersion"] == before["resourceVersion"]
    reply = await things.patch(POD, {"metadata": {"deletionGracePeriodSeconds": 5}})
    assert reply.code == 422
    assert "metadata.deletionGracePeriodSeconds: Invalid value: 5: field is immutable" in (
        reply.message
    )


async def test_what_is_missing_is_told_before_the_patch_is_read(http):
    """A patch of nothing is 404, whatever the patch says; only an apply may create."""
    reply = await http.send(
        "PATCH",
        "/api/v1/namespaces/default/configmaps/none",
        b"{broken",
        media="application/merge-patch+json",
    )
    assert (reply.code, reply.message) == (404, 'configmaps "none" not found')
