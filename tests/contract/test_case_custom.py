"""Cases C1-C6: custom resources from definition to table."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator

import attrs
import pytest

from .api import TABLE, Api, Reply, condition, names, until

case = pytest.mark.case
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SPEC = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 0},
        "max": {"type": "integer", "default": 10},
        "color": {"type": "string", "enum": ["red", "blue"]},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
    "x-kubernetes-validations": [
        {"rule": "self.size <= self.max", "message": "size must not exceed max"}
    ],
}


@attrs.frozen
class Kind:
    """A custom kind of the case's own."""

    api: Api
    group: str

    @property
    def crd(self) -> str:
        """Address of its definition."""
        return f"{CRDS}/widgets.{self.group}"

    @property
    def path(self) -> str:
        """Address of its objects."""
        return self.api.path("widgets", group=f"{self.group}/v1")

    def widget(self, name: str, **spec: object) -> dict:
        """A body."""
        return {
            "apiVersion": f"{self.group}/v1",
            "kind": "Widget",
            "metadata": {"name": name},
            "spec": spec,
        }

    async def create(self, name: str, **spec: object) -> Reply:
        """Create an object."""
        return await self.api.post(self.path, self.widget(name, **spec))


def _definition(group: str) -> dict:
    status = {"type": "object", "properties": {"size": {"type": "integer"}}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC, "status": status}}
        },
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
        },
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
        "selectableFields": [{"jsonPath": ".spec.color"}],
    }
    return {
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version],
        },
    }


@pytest.fixture
async def kind(api: Api) -> AsyncIterator[Kind]:
    kind = Kind(api, f"c{uuid.uuid4().hex[:8]}.example.com")
    made = await api.post(CRDS, _definition(kind.group))
    assert made.code == 201, made.body
    assert made.body["status"]["acceptedNames"] == {"plural": "", "kind": ""}
    await api.until(kind.crd, lambda r: condition(r.body, "Established").get("status") == "True")
    await api.until(kind.path, lambda reply: reply.code == 200)
    yield kind
    await api.delete(kind.crd)


@case("C1")
async def test_a_definition_is_served_and_goes(kind: Kind):
    """Discovery lists it with scale; after its deletion the group is plain 404."""
    listed = await kind.api.get(f"/apis/{kind.group}/v1")
    entries = {entry["name"]: entry for entry in listed.body["resources"]}
    assert set(entries) == {"widgets", "widgets/status", "widgets/scale"}
    assert entries["widgets/scale"]["group"] == "autoscaling"
    bad = _definition(f"x{kind.group}")
    bad["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = {"items": {}}
    refused = await kind.api.post(CRDS, bad)
    assert refused.code == 422
    assert "openAPIV3Schema" in refused.message
    await kind.api.delete(kind.crd)
    gone = await kind.api.until(kind.path, lambda reply: reply.code == 404)
    await kind.api.until(kind.path, lambda reply: reply.body == "404 page not found\n")
    assert gone.code == 404


@case("C2")
async def test_objects_are_defaulted_and_pruned(kind: Kind):
    """Defaults come, unknown fields go, free subtrees stay, status is dropped."""
    body = kind.widget("a", size=1, nonsense=2, free={"x": {"y": 1}})
    made = await kind.api.post(kind.path, {**body, "status": {"size": 4}})
    assert made.code == 201
    assert made.body["spec"] == {"size": 1, "max": 10, "free": {"x": {"y": 1}}}
    assert "status" not in made.body
    strict = await kind.api.post(f"{kind.path}?fieldValidation=Strict", kind.widget("b", nope=1))
    assert strict.code == 400
    assert 'unknown field "spec.nope"' in strict.message


@case("C3")
@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({}, "spec.size: Required value"),
        ({"size": "x"}, 'spec.size in body must be of type integer: "string"'),
        ({"size": -1}, "spec.size in body should be greater than or equal to 0"),
        (
            {"size": 1, "color": "green"},
            'spec.color: Unsupported value: "green": supported values: "red", "blue"',
        ),
    ],
)
async def test_schema_errors(kind: Kind, spec: dict, text: str):
    """422 in the words of the schema."""
    reply = await kind.create("a", **spec)
    assert reply.code == 422
    assert text in reply.message


@case("C4")
async def test_rules(kind: Kind):
    """A failing rule tells its message; broken objects say that rules were skipped."""
    failing = await kind.create("a", size=11)
    assert failing.code == 422
    assert "spec: Invalid value: " in failing.message
    assert failing.message.endswith("size must not exceed max")
    skipped = await kind.create("a", color="red")
    causes = skipped.body["details"]["causes"]
    assert {"reason": "FieldValueInvalid", "field": "<nil>"}.items() <= causes[-1].items()
    assert "some validation rules were not checked" in causes[-1]["message"]


@case("C5")
async def test_status_scale_and_apply(kind: Kind):
    """Status keeps the generation, spec and scale raise it; the scale shows both."""
    await kind.create("a", size=1)
    path = f"{kind.path}/a"
    status = await kind.api.patch(f"{path}/status", {"status": {"size": 1}})
    assert (status.body["status"], status.meta["generation"]) == ({"size": 1}, 1)
    scale = await kind.api.get(f"{path}/scale")
    assert (scale.body["kind"], scale.body["spec"]) == ("Scale", {"replicas": 1})
    assert scale.body["status"] == {"replicas": 1}
    scaled = await kind.api.patch(f"{path}/scale", {"spec": {"replicas": 3}})
    assert scaled.body["spec"] == {"replicas": 3}
    assert (await kind.api.get(path)).meta["generation"] == 2
    raw = json.dumps(kind.widget("a", size=4)).encode()
    how = {"media": "application/apply-patch+yaml"}
    clash = await kind.api.send("PATCH", f"{path}?fieldManager=me", raw, **how)
    assert clash.code == 409
    forced = await kind.api.send("PATCH", f"{path}?fieldManager=me&force=true", raw, **how)
    assert forced.body["spec"]["size"] == 4


@case("C6")
async def test_columns_selectors_and_lists(kind: Kind):
    """Integers stay numbers in cells; only declared fields select; lists have kinds."""
    await kind.create("a", size=1, color="red")
    await kind.create("b", size=2, color="blue")
    table = (await kind.api.get(kind.path, accept=TABLE)).body
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Size", "Age"]
    assert [row["cells"][:2] for row in table["rows"]] == [["a", 1], ["b", 2]]
    selected = await kind.api.get(f"{kind.path}?fieldSelector=spec.color%3Dred")
    assert names(selected) == ["a"]
    assert selected.body["items"][0]["kind"] == "Widget"
    assert selected.meta["continue"] == ""
    refused = await kind.api.get(f"{kind.path}?fieldSelector=spec.size%3D1")
    assert refused.code == 400


@case("W6")
async def test_replacing_a_custom_object_needs_a_version(kind: Kind):
    """422 with the number that was read."""
    await kind.create("a", size=1)
    reply = await kind.api.put(f"{kind.path}/a", kind.widget("a", size=2))
    assert reply.code == 422
    assert reply.message.endswith(
        "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    )


@case("W7")
async def test_custom_objects_know_no_strategic_merge(kind: Kind):
    """415 that names the others."""
    await kind.create("a", size=1)
    reply = await kind.api.patch(f"{kind.path}/a", {}, "strategic-merge-patch+json")
    assert reply.code == 415
    assert "application/apply-patch+yaml" in reply.message


@pytest.mark.unrecorded
async def test_old_faults_are_ratcheted(kind: Kind):
    """A value that a new schema refuses may stay while other fields change."""
    await kind.create("a", size=1, color="red")
    definition = (await kind.api.get(kind.crd)).body
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["color"]["enum"] = ["blue"]
    assert (await kind.api.put(kind.crd, definition)).code == 200
    await until(
        lambda: kind.api.post(f"{kind.path}?dryRun=All", kind.widget("b", size=1, color="red")),
        lambda reply: reply.code == 422,
    )
    kept = await kind.api.patch(f"{kind.path}/a", {"spec": {"size": 2}})
    assert kept.code == 200, kept.body
    assert (await kind.api.patch(f"{kind.path}/a", {"spec": {"color": "green"}})).code == 422


@pytest.mark.unrecorded
async def test_messages_may_be_computed(kind: Kind):
    """A messageExpression names values."""
    definition = (await kind.api.get(kind.crd)).body
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["x-kubernetes-validations"] = [
        # Servers refuse what may cost much: a sum of texts counts as such here.
        {"rule": "self.size < 5", "messageExpression": "string(self.size)"}
    ]
    assert (await kind.api.put(kind.crd, definition)).code == 200
    reply = await until(
        lambda: kind.api.post(f"{kind.path}?dryRun=All", kind.widget("b", size=7)),
        lambda reply: reply.code == 422,
    )
    assert reply.message.endswith(": 7")
