"""Who may submit PodGroups of other projects to a queue, with the policies shipped for it."""

from __future__ import annotations

import pytest

from gpusched.base import installed_files
from tests.behaviour.fuzz.foreign_kinds import ANY, SCHEMAS, install
from tests.daemon.tenants.tenants import MERGE, RBAC, tenant
from tests.daemon.tenants.test_tenant_queues import queue

POLICY = installed_files.path("manifests") / "policies-other-projects"
NATIVE = "podgroups.scheduling.k8s.io"
VERSIONS = {
    NATIVE: "scheduling.k8s.io/v1alpha2",
    "podgroups.scheduling.x-k8s.io": "scheduling.x-k8s.io/v1alpha1",
    "podgroups.scheduling.volcano.sh": "scheduling.volcano.sh/v1beta1",
    "podgroups.scheduling.run.ai": "scheduling.run.ai/v2alpha2",
}


WITH_PRIORITY = [NATIVE, "podgroups.scheduling.volcano.sh", "podgroups.scheduling.run.ai"]
LABEL = "gpusched.io/queue"
NAMING = [
    pytest.param(kind, *how, id=f"{kind.partition('.')[2]}, {how[0]} {how[1]}".strip())
    for kind in VERSIONS
    for how in (
        ("spec", ""),
        ("labels", LABEL),
        ("annotations", "scheduling.volcano.sh/queue-name"),
    )
    if how[0] != "spec" or "k8s.io" not in kind
]
"""Kinds, and where their objects name a queue."""


@pytest.fixture(autouse=True)
def native_groups(monkeypatch):
    """PodGroups of Kubernetes itself, which the embedded server does not have, as a CRD."""
    monkeypatch.setitem(SCHEMAS, NATIVE, ("v1alpha2", "PodGroup", True, ANY, ANY))


def group(kind, name, *, labels=None, annotations=None, **spec):
    """A PodGroup of another project."""
    return {
        "apiVersion": VERSIONS[kind],
        "kind": "PodGroup",
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
        "spec": {"minMember": 1, **spec},
    }


def naming(where, key, queue):
    """The field that names a queue."""
    return {"queue": queue} if where == "spec" else {where: {key: queue}}


def allow(w, namespace, name):
    """Let the user of a namespace submit to a queue."""
    rule = {
        "apiGroups": ["scheduling.gpusched.io"], "resources": ["queues"],
        "resourceNames": [name], "verbs": ["submit"],
    }  # fmt: skip
    head = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": "submit", "namespace": namespace}}
    w.client.create(f"roles.{RBAC}", {**head, "kind": "Role", "rules": [rule]})
    who = {"kind": "ServiceAccount", "name": "user", "namespace": namespace}
    role = {"apiGroup": RBAC, "kind": "Role", "name": "submit"}
    w.client.create(
        f"rolebindings.{RBAC}", {**head, "kind": "RoleBinding", "roleRef": role, "subjects": [who]}
    )


def let_edit(w, namespace, kind):
    """Let the user write PodGroups of the other project, as its own roles do."""
    rule = {"apiGroups": [kind.partition(".")[2]], "resources": ["podgroups"], "verbs": ["*"]}
    head = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": "groups", "namespace": namespace}}
    w.client.create(f"roles.{RBAC}", {**head, "kind": "Role", "rules": [rule]})
    who = {"kind": "ServiceAccount", "name": "user", "namespace": namespace}
    role = {"apiGroup": RBAC, "kind": "Role", "name": "groups"}
    w.client.create(
        f"rolebindings.{RBAC}", {**head, "kind": "RoleBinding", "roleRef": role, "subjects": [who]}
    )


@pytest.mark.parametrize(("kind", "where", "key"), NAMING)
@pytest.mark.parametrize("asked", [True, False])
def test_a_tenant_submits_where_the_verb_is_held(play, kind, where, key, asked):
    """Without the policy nobody is asked; with it the queue has to be open to the tenant."""

    async def scenario(w):
        await w.start(nodes=1, apply=[POLICY] if asked else [])
        await install(w, kind)
        queue(w, "theirs")
        queue(w, "mine")
        mallory = await tenant(w, "mallory")
        let_edit(w, "mallory", kind)
        allow(w, "mallory", "mine")
        path = mallory.path(f"{VERSIONS[kind]}/podgroups")
        codes = {}
        for name in ("theirs", "mine", "default"):
            code, said = await mallory.try_to(
                "POST", path, group(kind, name, **naming(where, key, name))
            )
            codes[name] = code
            if code == 403:
                assert "may not submit to the queue theirs" in said["message"]
        assert codes == {"theirs": 403 if asked else 201, "mine": 201, "default": 201}
        moved = naming(where, key, "theirs")
        moved = {"spec": moved} if where == "spec" else {"metadata": moved}
        code, _ = await mallory.try_to("PATCH", f"{path}/mine", moved, content_type=MERGE)
        assert code == (403 if asked else 200)
        w.client.patch(
            "namespaces", None, "mallory",
            {"metadata": {"labels": {"gpusched.io/other-scheduler": "volcano"}}},
        )  # fmt: skip
        code, _ = await mallory.try_to(
            "POST", path, group(kind, "free", **naming(where, key, "theirs"))
        )
        assert code == 201

    play(scenario)


@pytest.mark.parametrize("kind", ["podgroups.scheduling.volcano.sh", "podgroups.scheduling.run.ai"])
def test_the_queue_of_the_spec_is_the_one_that_is_asked_about(play, kind):
    """The scheduler goes by it, too; two labels that disagree are refused."""

    async def scenario(w):
        await w.start(nodes=1, apply=[POLICY])
        await install(w, kind)
        queue(w, "theirs")
        mallory = await tenant(w, "mallory")
        let_edit(w, "mallory", kind)
        path = mallory.path(f"{VERSIONS[kind]}/podgroups")
        plain = group(kind, "a", queue="default", labels={LABEL: "theirs"})
        assert (await mallory.try_to("POST", path, plain))[0] == 201
        two = {LABEL: "default", "kai.scheduler/queue": "theirs"}
        code, said = await mallory.try_to("POST", path, group(kind, "b", labels=two))
        assert (code, "more than one queue" in said["message"]) == (403, True)
        empty = {"metadata": {"labels": {LABEL: "theirs"}}, "spec": {"queue": ""}}
        code, _ = await mallory.try_to("PATCH", f"{path}/a", empty, content_type=MERGE)
        assert code == 403

    play(scenario)


@pytest.mark.parametrize("kind", WITH_PRIORITY)
@pytest.mark.parametrize("asked", [True, False])
def test_a_restricted_priority_class_is_asked_about_in_groups_of_others(play, kind, asked):
    """As in our own PodGroups: the verb use is missing."""

    async def scenario(w):
        await w.start(nodes=1, apply=[POLICY] if asked else [])
        await install(w, kind)
        for name, labels in (("urgent", {"gpusched.io/restricted": "true"}), ("plain", {})):
            w.client.create(
                "priorityclasses.scheduling.k8s.io",
                {
                    "apiVersion": "scheduling.k8s.io/v1",
                    "kind": "PriorityClass",
                    "metadata": {"name": name, "labels": labels},
                    "value": 1000,
                },
            )
        mallory = await tenant(w, "mallory")
        let_edit(w, "mallory", kind)
        path = mallory.path(f"{VERSIONS[kind]}/podgroups")
        codes = {}
        for name in ("urgent", "plain", "system-node-critical"):
            made = group(kind, name, priorityClassName=name)
            codes[name], said = await mallory.try_to("POST", path, made)
            if codes[name] == 403:
                assert f"may not use the priority class {name}" in said["message"]
        no = 403 if asked else 201
        assert codes == {"urgent": no, "plain": 201, "system-node-critical": no}

    play(scenario)
