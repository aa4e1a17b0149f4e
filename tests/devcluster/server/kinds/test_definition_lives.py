"""Definitions of custom kinds over their life: refusals, names, versions, changes, the end."""

from __future__ import annotations

import copy

import pytest

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/namespaces/default/things"
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definition(plural="things", kind="Thing", schema=None, **spec):
    version = {"name": "v1", "served": True, "storage": True}
    version["schema"] = {"openAPIV3Schema": schema or OPEN}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [version],
            **spec,
        },
    }


def thing(name="a", version="v1", **rest):
    meta = {"name": name, **rest.pop("metadata", {})}
    return {"apiVersion": f"example.com/{version}", "kind": "Thing", "metadata": meta, **rest}


async def served(http, body, path=THINGS):
    reply = await http.post(CRDS, body)
    assert reply.code == 201, reply.body
    await http.until(path, 200)


def conditions(crd):
    return {c["type"]: (c["status"], c["reason"]) for c in crd["status"]["conditions"]}


@pytest.mark.parametrize(
    ("change", "field", "why"),
    [
        ({"scope": ""}, "spec.scope", "Required value"),
        (
            {"scope": "Galaxy"},
            "spec.scope",
            'Unsupported value: "Galaxy": supported values: "Cluster", "Namespaced"',
        ),
        (
            {"names": {"plural": "things", "kind": "Thing", "listKind": "Thing"}},
            "spec.names.listKind",
            'Invalid value: "Thing": kind and listKind may not be the same',
        ),
        (
            {"preserveUnknownFields": True},
            "spec.preserveUnknownFields",
            (
                "Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to "
                "true in spec.versions[*].schema instead"
            ),
        ),
        (
            {"conversion": {"strategy": "Magic"}},
            "spec.conversion.strategy",
            'Unsupported value: "Magic": supported values: "None", "Webhook"',
        ),
    ],
)
async def test_specs_that_are_refused(http, change, field, why):
    """Each is one field error in the API server's words."""
    body = definition()
    body["spec"].update(change)
    reply = await http.post(CRDS, body)
    assert reply.code == 422, reply.body
    causes = {c["field"]: c["message"] for c in reply.body["details"]["causes"]}
    assert causes[field] == why


@pytest.mark.parametrize(
    ("change", "field", "why"),
    [
        (
            {"additionalPrinterColumns": [{"name": "A", "type": "text", "jsonPath": ".a"}]},
            "spec.additionalPrinterColumns[0].type",
            'Invalid value: "text": must be one of boolean,date,integer,number,string',
        ),
        (
            {"selectableFields": [{"jsonPath": ".spec.nope"}]},
            "spec.selectableFields[0].jsonPath",
            'Invalid value: ".spec.nope": is an invalid path: does not refer to a valid field',
        ),
        (
            {"subresources": {"scale": {"specReplicasPath": ".x", "statusReplicasPath": ".y"}}},
            "spec.subresources.scale.specReplicasPath",
            'Invalid value: ".x": should be a json path under .spec',
        ),
    ],
)
async def test_parts_of_a_version_that_are_refused(http, change, field, why):
    """With one version its parts are told as parts of the spec."""
    body = definition()
    body["spec"]["versions"][0].update(change)
    reply = await http.post(CRDS, body)
    assert reply.code == 422, reply.body
    causes = {c["field"]: c["message"] for c in reply.body["details"]["causes"]}
    assert causes[field] == why


async def test_protected_groups_need_approval(http):
    """Groups of the project carry a note."""
    body = definition(group="x.k8s.io")
    body["metadata"]["name"] = "things.x.k8s.io"
    reply = await http.post(CRDS, body)
    assert 'protected groups must have approval annotation "api-approved.kubernetes.io"' in (
        reply.message
    )


async def test_taken_names_are_not_accepted_until_they_are_free(http):
    """The second of two kinds with one name is not served before the first is gone."""
    await served(http, definition())
    second = definition("others")
    await http.post(CRDS, second)
    crd = (await http.get(f"{CRDS}/others.example.com")).body
    assert conditions(crd) == {
        "NamesAccepted": ("False", "ListKindConflict"),
        "Established": ("False", "NotAccepted"),
    }
    assert crd["status"]["acceptedNames"]["kind"] == ""
    assert (await http.get("/apis/example.com/v1/others")).code == 404
    await http.delete(f"{CRDS}/things.example.com")
    await http.until("/apis/example.com/v1/others", 200)


async def test_versions_share_objects(http):
    """An object is seen in every served version, each with its own defaults."""
    body = definition()
    two = copy.deepcopy(body["spec"]["versions"][0])
    two |= {"name": "v2", "storage": False}
    two["schema"] = {
        "openAPIV3Schema": {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "default": {},
                    "properties": {"n": {"type": "integer", "default": 7}},
                }
            },
        }
    }
    body["spec"]["versions"].append(two)
    await served(http, body)
    await http.post(THINGS, thing(spec={"free": 1}))
    seen = (await http.get(THINGS.replace("v1", "v2") + "/a")).body
    assert seen["apiVersion"] == "example.com/v2"
    assert seen["spec"] == {"n": 7}
    assert (await http.get(f"{THINGS}/a")).body["spec"] == {"free": 1}


async def test_a_version_that_is_no_longer_served(http):
    """It vanishes from the API; a stored version cannot leave the spec."""
    body = definition()
    two = {**body["spec"]["versions"][0], "name": "v2", "storage": False}
    body["spec"]["versions"].append(two)
    await served(http, body)
    path = f"{CRDS}/things.example.com"
    swap = [
        {"op": "replace", "path": "/spec/versions/0/served", "value": False},
        {"op": "replace", "path": "/spec/versions/0/storage", "value": False},
        {"op": "replace", "path": "/spec/versions/1/storage", "value": True},
    ]
    reply = await http.patch(path, swap, "json-patch+json")
    assert reply.body["status"]["storedVersions"] == ["v1", "v2"]
    await http.until(THINGS, 404)
    gone = [{"op": "remove", "path": "/spec/versions/0"}]
    reply = await http.patch(path, gone, "json-patch+json")
    assert reply.code == 422
    assert 'status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was' in (
        reply.message
    )


async def test_names_are_sealed_once_established(http):
    """Kind and scope cannot change."""
    await served(http, definition())
    change = {"spec": {"scope": "Cluster", "names": {"kind": "Other", "listKind": "OtherList"}}}
    reply = await http.patch(f"{CRDS}/things.example.com", change)
    causes = [(c["field"], c["message"]) for c in reply.body["details"]["causes"]]
    assert ("spec.scope", 'Invalid value: "Cluster": field is immutable') in causes
    assert ("spec.names.kind", 'Invalid value: "Other": field is immutable') in causes


async def test_a_new_default_shows_on_old_objects(http):
    """A changed schema is what stored objects are read by."""
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    }
    await served(http, definition(schema=schema))
    await http.post(THINGS, thing(spec={}))
    schema = copy.deepcopy(schema)
    schema["properties"]["spec"]["properties"]["n"]["default"] = 5
    at = "/spec/versions/0/schema/openAPIV3Schema"
    op = [{"op": "replace", "path": at, "value": schema}]
    await http.patch(f"{CRDS}/things.example.com", op, "json-patch+json")
    assert (await http.get(f"{THINGS}/a")).body["spec"] == {"n": 5}


async def test_a_definition_waits_for_its_objects(http):
    """Objects with finalizers hold it up; nothing new comes meanwhile."""
    await served(http, definition())
    await http.post(THINGS, thing(metadata={"finalizers": ["example.com/x"]}))
    await http.post(THINGS, thing("b"))
    path = f"{CRDS}/things.example.com"
    deleted = await http.delete(path)
    assert conditions(deleted.body)["Terminating"] == ("True", "InstanceDeletionPending")
    await http.until(f"{THINGS}/b", 404)
    held = (await http.get(path)).body["metadata"]
    assert held["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    reply = await http.post(THINGS, thing("c"))
    assert (reply.code, reply.message) == (
        405,
        "create not allowed while custom resource definition is terminating",
    )
    await http.patch(f"{THINGS}/a", {"metadata": {"finalizers": None}})
    await http.until(path, 404)


async def test_old_errors_are_forgiven_only_where_nothing_changed(http):
    """A tightened schema refuses changed values, not those left alone."""
    spec = {"type": "object", "properties": {"s": {"type": "string"}, "t": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": spec}}
    await served(http, definition(schema=schema))
    await http.post(THINGS, thing(spec={"s": "too long", "t": "x"}))
    at = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/s/maxLength"
    op = [{"op": "add", "path": at, "value": 3}]
    await http.patch(f"{CRDS}/things.example.com", op, "json-patch+json")
    fine = await http.patch(f"{THINGS}/a", {"spec": {"t": "y"}})
    assert fine.code == 200
    bad = await http.patch(f"{THINGS}/a", {"spec": {"s": "also too long"}})
    assert bad.code == 422
    assert "spec.s: Too long: may not be more than 3 bytes" in bad.message


async def test_nulls_that_are_not_allowed_vanish(http):
    """A null gets the default or goes; where it is allowed it stays."""
    n = {"type": "integer"}
    spec = {"n": n, "d": {**n, "default": 3}, "free": {**n, "nullable": True, "default": 1}}
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": spec}},
    }
    await served(http, definition(schema=schema))
    made = await http.post(THINGS, thing(spec={"n": None, "d": None, "free": None}))
    assert made.body["spec"] == {"d": 3, "free": None}
    cleared = await http.patch(f"{THINGS}/a", [{"op": "add", "path": "/spec", "value": None}],
                               "json-patch+json")  # fmt: skip
    assert "spec" not in cleared.body


async def test_paths_that_a_custom_kind_does_not_have(http):
    """Subresources it lacks are not found by name, places it does not live are no paths."""
    await served(http, definition())
    await http.post(THINGS, thing())
    for sub in ("status", "scale", "nope"):
        reply = await http.get(f"{THINGS}/a/{sub}")
        assert (reply.code, reply.message) == (404, 'things.example.com "a" not found')
    nowhere = "/apis/example.com/v1/things"
    assert (await http.post(nowhere, thing())).body == "404 page not found\n"
    assert (await http.get(f"{nowhere}/a")).body == "404 page not found\n"
    assert (await http.get(nowhere)).code == 200
    assert (await http.get("/api/v1/namespaces/default/nodes")).code == 404


async def test_owners_of_custom_objects_are_checked_once(http):
    """What is wrong with an owner is told as for every kind, and not by the schema again."""
    await served(http, definition())
    owner = {"kind": "X", "name": "x", "uid": "u"}
    reply = await http.post(THINGS, thing(metadata={"ownerReferences": [owner]}))
    causes = [c["field"] for c in reply.body["details"]["causes"]]
    assert causes == ["metadata.ownerReferences.apiVersion"]
