"""Cases W1-W9: status, patches, optimistic locking, server-side apply."""

from __future__ import annotations

import json

import pytest

from .api import Api, Reply, condition, config_map

case = pytest.mark.case
STRATEGIC = "strategic-merge-patch+json"
JSON = "json-patch+json"


@case("W1")
async def test_conditions_merge_by_type(api: Api):
    """Strategic merge puts a new condition first; a merge patch replaces the list."""
    await api.create_pod("a")
    path = f"{api.pods}/a/status"
    for kind in ("One", "Two"):
        body = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
        reply = await api.patch(path, body, STRATEGIC)
        assert reply.code == 200
    assert [c["type"] for c in reply.body["status"]["conditions"]] == ["Two", "One"]
    body = {"status": {"conditions": [{"type": "Three", "status": "True"}]}}
    reply = await api.patch(path, body)
    assert [c["type"] for c in reply.body["status"]["conditions"]] == ["Three"]


@case("W2")
async def test_status_and_the_rest_are_written_apart(api: Api):
    """What a path does not write is ignored; the rest applies."""
    await api.create_pod("a")
    body = {"metadata": {"labels": {"l": "1"}}, "status": {"phase": "Running"}}
    main = await api.patch(f"{api.pods}/a", body)
    assert (main.body["status"]["phase"], main.meta["labels"]) == ("Pending", {"l": "1"})
    body = {"spec": {"activeDeadlineSeconds": 5}, "status": {"phase": "Running"}}
    status = await api.patch(f"{api.pods}/a/status", body)
    assert status.body["status"]["phase"] == "Running"
    assert "activeDeadlineSeconds" not in status.body["spec"]


@case("W3")
async def test_json_patches(api: Api):
    """Failed tests and missing paths are 422; escapes work."""
    await api.create_pod("a", labels={"l": "1"})
    for operation in (
        {"op": "test", "path": "/metadata/labels/l", "value": "2"},
        {"op": "remove", "path": "/metadata/labels/none"},
    ):
        failed = await api.patch(f"{api.pods}/a", [operation], JSON)
        assert failed.code == 422
        assert failed.message == "the server rejected our request due to an error in our request"
    add = {"op": "add", "path": "/metadata/labels/x~1y", "value": "2"}
    done = await api.patch(f"{api.pods}/a", [add], JSON)
    assert done.meta["labels"] == {"l": "1", "x/y": "2"}


@case("W4")
async def test_what_may_not_change(api: Api):
    """A sealed field and a foreign uid are 422."""
    await api.create_pod("a")
    sealed = await api.patch(f"{api.pods}/a", {"spec": {"schedulerName": "other"}})
    assert sealed.code == 422
    assert "pod updates may not change fields other than" in sealed.message
    foreign = await api.patch(f"{api.pods}/a", {"metadata": {"uid": "other"}})
    assert foreign.code == 422
    assert "metadata.uid: Invalid value" in foreign.message
    assert "field is immutable" in foreign.message


@case("W5")
async def test_stale_writes_conflict(api: Api):
    """PUT and PATCH with an old version are 409."""
    path = api.path("configmaps", "a")
    old = (await api.post(api.path("configmaps"), config_map("a", x="1"))).body
    await api.patch(path, {"data": {"x": "2"}})
    for reply in (
        await api.put(path, {**old, "data": {"x": "3"}}),
        await api.patch(
            path, {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}}
        ),
    ):
        assert reply.code == 409
        assert reply.message == (
            'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
            "please apply your changes to the latest version and try again"
        )


@case("W6")
async def test_replacing_without_a_version_or_a_change(api: Api):
    """A pod needs no version; a write of nothing keeps the version."""
    made = await api.create_pod("a")
    again = await api.put(f"{api.pods}/a", made)
    assert again.meta["resourceVersion"] == made["metadata"]["resourceVersion"]
    del made["metadata"]["resourceVersion"]
    made["metadata"]["labels"] = {"l": "1"}
    assert (await api.put(f"{api.pods}/a", made)).code == 200


@case("W7")
async def test_unknown_patch_types_are_415(api: Api):
    """With the text of the built-in path."""
    await api.create_pod("a")
    reply = await api.patch(f"{api.pods}/a", {}, "nonsense+json")
    assert reply.code == 415
    assert reply.body["reason"] == "UnsupportedMediaType"


async def _apply(api: Api, name: str, data: dict, query: str) -> Reply:
    raw = json.dumps(config_map(name, **data)).encode()
    path = api.path("configmaps", name) + query
    return await api.send("PATCH", path, raw, media="application/apply-patch+yaml")


@case("W8")
async def test_apply_knows_owners(api: Api):
    """Without manager 422, new 201, another's field 409."""
    nobody = await _apply(api, "a", {"x": "1"}, "")
    assert nobody.code == 422
    assert "fieldManager: Required value: is required for apply patch" in nobody.message
    assert (await _apply(api, "a", {"x": "1"}, "?fieldManager=one")).code == 201
    clash = await _apply(api, "a", {"x": "2"}, "?fieldManager=two")
    assert clash.code == 409
    assert clash.message == 'Apply failed with 1 conflict: conflict with "one": .data.x'
    assert clash.body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.x"}
    ]


@case("W9")
async def test_apply_takes_over_and_lets_go(api: Api):
    """Force takes a field; a field left out goes unless another manager has it."""
    await _apply(api, "a", {"x": "1", "y": "1", "z": "1"}, "?fieldManager=one")
    forced = await _apply(api, "a", {"x": "2", "y": "1"}, "?fieldManager=two&force=true")
    assert forced.body["data"] == {"x": "2", "y": "1", "z": "1"}
    less = await _apply(api, "a", {}, "?fieldManager=one")
    assert less.body["data"] == {"x": "2", "y": "1"}


@case("W9")
async def test_apply_on_status_merges_by_type(api: Api):
    """Each manager of a status keeps its own conditions."""
    await api.create_pod("a")
    for manager in ("one", "two"):
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "a"},
            "status": {"conditions": [{"type": manager, "status": "True"}]},
        }
        reply = await api.send(
            "PATCH",
            f"{api.pods}/a/status?fieldManager={manager}",
            json.dumps(body).encode(),
            media="application/apply-patch+yaml",
        )
        assert reply.code == 200
    assert condition(reply.body, "one")
    assert condition(reply.body, "two")
