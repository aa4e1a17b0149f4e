"""Custom kinds at run time: definition, validation, subresources, and their end."""

import pytest

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"

SPEC = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 0},
        "max": {"type": "integer", "default": 50},
        "color": {"type": "string", "enum": ["red", "blue"]},
    },
    "x-kubernetes-validations": [
        {"rule": "self.size <= self.max", "message": "size must not exceed max"}
    ],
}
SCHEMA = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": SPEC,
        "status": {"type": "object", "properties": {"size": {"type": "integer"}}},
    },
}
DEFINITION = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.size",
                        "statusReplicasPath": ".status.size",
                    },
                },
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "schema": {"openAPIV3Schema": SCHEMA},
            }
        ],
    },
}


def widget(**spec):
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "a"},
        "spec": spec,
    }


async def established(http):
    """Create the definition and wait until its objects are served."""
    assert (await http.post(CRDS, DEFINITION)).code == 201
    await http.until(WIDGETS, 200)


async def test_a_definition_brings_its_kind_into_discovery(http):
    """A definition is established, served, and listed with its subresources."""
    await established(http)
    conditions = (await http.get(f"{CRDS}/widgets.example.com")).body["status"]["conditions"]
    assert [c["type"] for c in conditions] == ["NamesAccepted", "Established"]
    listed = (await http.get("/apis/example.com/v1")).body["resources"]
    assert [r["name"] for r in listed] == ["widgets", "widgets/status", "widgets/scale"]


async def test_objects_are_pruned_defaulted_and_checked(http):
    """Unknown fields go, defaults come, schema and CEL rules are told in full."""
    await established(http)
    bad = await http.post(WIDGETS, widget(size=-1))
    assert "spec.size in body should be greater than or equal to 0" in bad.message
    rule = await http.post(WIDGETS, widget(size=60))
    assert rule.message.endswith("is invalid: spec: Invalid value: size must not exceed max")
    made = await http.post(WIDGETS, {**widget(size=3, junk=1), "status": {"size": 9}})
    assert made.body["spec"] == {"size": 3, "max": 50}
    assert "status" not in made.body


async def test_status_keeps_the_generation_and_spec_raises_it(http):
    """Generation counts what the owner asks for, not what a controller reports."""
    await established(http)
    await http.post(WIDGETS, widget(size=3))
    status = await http.patch(f"{WIDGETS}/a/status", {"status": {"size": 3}, "spec": {"size": 9}})
    assert (status.body["metadata"]["generation"], status.body["spec"]["size"]) == (1, 3)
    spec = await http.patch(f"{WIDGETS}/a", {"spec": {"size": 4}})
    assert spec.body["metadata"]["generation"] == 2
    unseen = await http.put(f"{WIDGETS}/a", widget(size=1))
    assert "must be specified for an update" in unseen.message


async def test_scale_reads_and_writes_through_its_paths(http):
    """The Scale is the object's own number."""
    await established(http)
    await http.post(WIDGETS, widget(size=3))
    scaled = await http.patch(f"{WIDGETS}/a/scale", {"spec": {"replicas": 7}})
    assert (scaled.body["kind"], scaled.body["spec"]) == ("Scale", {"replicas": 7})
    assert (await http.get(f"{WIDGETS}/a")).body["spec"]["size"] == 7


@pytest.mark.parametrize(("field", "code"), [("spec.color%3Dred", 200), ("spec.size%3D3", 400)])
async def test_only_declared_fields_can_be_selected(http, field, code):
    """A field named in selectableFields can be selected by, no other."""
    await established(http)
    assert (await http.get(f"{WIDGETS}?fieldSelector={field}")).code == code


async def test_a_deleted_definition_takes_its_objects_along(http):
    """After a deletion the path is unknown, and a new definition starts empty."""
    await established(http)
    await http.post(WIDGETS, widget(size=3))
    await http.delete(f"{CRDS}/widgets.example.com")
    await http.until(WIDGETS, 404)
    await established(http)
    assert (await http.get(WIDGETS)).body["items"] == []


async def test_a_schema_without_types_is_refused(http):
    """A definition that is not structural is told each place."""
    version = {**DEFINITION["spec"]["versions"][0]}
    version["schema"] = {"openAPIV3Schema": {"properties": {"spec": {}}}}
    spec = {**DEFINITION["spec"], "versions": [version]}
    reply = await http.post(CRDS, {**DEFINITION, "spec": spec})
    assert reply.code == 422
    assert "must not be empty at the root" in reply.message


async def test_the_projects_own_kinds_are_there_from_the_start(http):
    """PodGroup, Queue and Topology are served before the first request."""
    listed = (await http.get("/apis/scheduling.gpusched.io/v1alpha1")).body["resources"]
    assert {"podgroups", "queues", "topologies"} <= {r["name"] for r in listed}
