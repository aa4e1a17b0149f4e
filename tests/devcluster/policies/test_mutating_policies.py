"""MutatingAdmissionPolicies of the embedded cluster: JSON patches before policies validate."""

from __future__ import annotations

from typing import Any

import pytest

from gpusched.base.clock import SystemClock
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.client.local_client import LocalClient
from gpusched.devcluster.apiserver.resource_api import ResourceApi
from gpusched.devcluster.cluster import build_core

from .exchanges import binding, config_map, policy

GROUP = "admissionregistration.k8s.io"
POLICIES, BINDINGS = (f"mutatingadmissionpolic{end}.{GROUP}" for end in ("ies", "ybindings"))
ADD = '[JSONPatch{op: "add", path: "/data/by", value: request.userInfo.username}]'


@pytest.fixture
def client():
    """A cluster with a namespace that the policies of these tests are about."""
    made = LocalClient(ResourceApi(build_core(SystemClock(), 1)))
    meta = {"name": "vap-x"}
    made.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    return made


def mutating(*expressions: str, **spec: Any):
    """A policy about created and changed config maps."""
    made = policy("x", **spec)
    made["kind"] = "MutatingAdmissionPolicy"
    rule = made["spec"]["matchConstraints"]["resourceRules"][0]
    rule["operations"] = ["CREATE", "UPDATE"]
    made["spec"]["mutations"] = [
        {"patchType": "JSONPatch", "jsonPatch": {"expression": text}} for text in expressions
    ]
    return made


def install(client, made, name: str = "") -> None:
    """A policy in force, under another name if need be."""
    made["metadata"]["name"] = name or made["metadata"]["name"]
    bound = binding("x")
    bound["kind"] = "MutatingAdmissionPolicyBinding"
    bound["metadata"]["name"] = bound["spec"]["policyName"] = made["metadata"]["name"]
    del bound["spec"]["validationActions"]
    client.create(POLICIES, made)
    client.create(BINDINGS, bound)


def refusal(client, make) -> str:
    """The sentence of the error that a call ends in."""
    with pytest.raises(StatusError) as error:
        make(client)
    return str(error.value.body["message"])


def create(client, name: str = "a", **data: str):
    """A config map, as it is stored."""
    return client.create("configmaps", config_map(name, **{"k": "v", **data}), "vap-x")


def test_what_a_mutation_adds_is_stored_and_seen_by_validating_policies(client):
    """On create and on update; each mutation sees those before it."""
    second = '[JSONPatch{op: "replace", path: "/data/by", value: object.data.by + "!"}]'
    install(client, mutating(ADD, second))
    client.create(f"validatingadmissionpolicies.{GROUP}", policy("x", validations=[
        {"expression": "object.data.by == 'system:devcluster!'"}]))  # fmt: skip
    client.create(f"validatingadmissionpolicybindings.{GROUP}", binding("x"))
    assert create(client)["data"] == {"k": "v", "by": "system:devcluster!"}
    client.patch("configmaps", "vap-x", "a", {"data": {"by": "eve"}})
    assert client.get("configmaps", "vap-x", "a")["data"]["by"] == "system:devcluster!"


def test_conditions_and_variables_count_as_with_validating_policies(client):
    """A condition that does not hold leaves the object; keys of a path are escaped."""
    add = (
        '[JSONPatch{op: "add", path: "/metadata/annotations", value: {}}, JSONPatch{op: "add", '
        "path: '/metadata/annotations/' + jsonpatch.escapeKey('a.b/c'), value: variables.v}]"
    )
    install(client, mutating(
        add, variables=[{"name": "v", "expression": "object.data.k + 'w'"}],
        matchConditions=[{"name": "c", "expression": "object.data.k == 'v'"}],
    ))  # fmt: skip
    assert create(client)["metadata"]["annotations"] == {"a.b/c": "vw"}
    assert "annotations" not in create(client, "b", k="other")["metadata"]


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ('[JSONPatch{op: "remove", path: "/data/none"}]', "there is nothing at /data/none"),
        ('[JSONPatch{op: "add", path: "/data/n", value: 1}]', "leaves no valid object"),
        ('[JSONPatch{op: "add", path: "/metadata/name", value: "z"}]', "metadata.name may not be"),
        ('[JSONPatch{op: "add", path: "/data/n", value: timestamp("2026-01-01T00:00:00Z")}]', "no JSON"),
        ("object.data.k == 'v' ? dyn(1) : dyn(2)", "a mutation gives a list of JSONPatch"),
        ("[JSONPatch{op: object.none}]", "no such key: none"),
    ],
)  # fmt: skip
def test_a_mutation_that_fails_refuses_or_is_ignored(client, expression, why):
    """As the policy says; nothing is half changed."""
    install(client, mutating(ADD, expression))
    assert why in (said := refusal(client, create))
    assert "MutatingAdmissionPolicy 'vap-x' with binding 'vap-x' denied request" in said
    client.delete(POLICIES, None, "vap-x")
    client.delete(BINDINGS, None, "vap-x")
    install(client, mutating(ADD, expression, failurePolicy="Ignore"))
    assert create(client)["data"] == {"k": "v"}


def test_a_policy_that_asks_for_it_runs_again_after_later_ones(client):
    """IfNeeded sees what a later policy made, once; Never does not."""
    count = (
        '[JSONPatch{op: "add", path: "/data/n", value: string(size(object.data))}, '
        'JSONPatch{op: "add", path: "/data/again", value: has(object.data.n) ? "yes" : "no"}]'
    )
    install(client, mutating(ADD), "z")
    install(client, mutating(count, reinvocationPolicy="IfNeeded"), "b")
    assert create(client)["data"] == {
        "k": "v", "by": "system:devcluster", "n": "4", "again": "yes",
    }  # fmt: skip
    client.patch(POLICIES, None, "b", {"spec": {"reinvocationPolicy": "Never"}})
    assert create(client, "b")["data"]["again"] == "no"


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ('[JSONPatch{op: 1, path: "/a"}]', "expected type of field 'op' is 'string' but provided"),
        ('[JSONPatch{ops: "add"}]', "undefined field 'ops'"),
        ('[Object{op: "add"}]', "undeclared reference to 'Object'"),
        ("[{'op': 'add'}]", "must evaluate to list(JSONPatch) but got list(map(string, string))"),
        ('[JSONPatch{op "add"}]', "Syntax error"),
        ('[JSONPatch{"op": "add"}]', "Syntax error: mismatched input"),
        ("", "expression is not specified"),
    ],
)
def test_a_mutation_without_meaning_is_not_stored(client, expression, why):
    """Types of fields are checked before it is in force."""
    assert why in refusal(client, lambda c: c.create(POLICIES, mutating(expression)))


def test_what_cannot_be_mutated_so_is_refused_with_a_reason(client):
    """Another patch type, deletions, and no mutation at all."""
    applied = mutating()
    applied["spec"]["mutations"] = [
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}
    ]
    said = refusal(client, lambda c: c.create(POLICIES, applied))
    assert "patchType ApplyConfiguration (write the change as JSONPatch" in said
    assert "not supported by the embedded API server" in said
    deleted = mutating(ADD)
    deleted["spec"]["matchConstraints"]["resourceRules"][0]["operations"] = ["DELETE"]
    assert '"DELETE"' in refusal(client, lambda c: c.create(POLICIES, deleted))
    assert "at least one item" in refusal(client, lambda c: c.create(POLICIES, mutating()))


def test_a_mutation_that_leaves_an_invalid_object_is_refused_by_validation(client):
    """On create and on update, as if the client had sent it so; a kind whose spec is needed."""
    group = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["*"]}
    made = mutating('[JSONPatch{op: "remove", path: "/spec"}]')
    made["spec"]["matchConstraints"]["resourceRules"] = [
        {**group, "operations": ["CREATE", "UPDATE"], "resources": ["jobs"]}
    ]
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}
    job = {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"template": {"spec": pod}},
    }  # fmt: skip
    client.create("jobs.batch", job, "vap-x")
    install(client, made)
    other = {**job, "metadata": {"name": "k"}}
    assert "spec.template" in refusal(client, lambda c: c.create("jobs.batch", other, "vap-x"))
    labels = {"metadata": {"labels": {"a": "b"}}}
    assert "spec" in refusal(client, lambda c: c.patch("jobs.batch", "vap-x", "j", labels))
