"""Who may submit PodGroups of Volcano and KAI to a queue, with the policy that is shipped for it."""

from __future__ import annotations

import pytest

from gpusched.base import installed_files
from tests.behaviour.fuzz.foreign_kinds import install
from tests.daemon.tenants.tenants import MERGE, RBAC, tenant
from tests.daemon.tenants.test_tenant_queues import queue

POLICY = installed_files.path("manifests") / "policies-other-projects"
VERSIONS = {
    "podgroups.scheduling.volcano.sh": "scheduling.volcano.sh/v1beta1",
    "podgroups.scheduling.run.ai": "scheduling.run.ai/v2alpha2",
}


def group(kind, name, **spec):
    """A PodGroup of another project."""
    return {
        "apiVersion": VERSIONS[kind],
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": 1, **spec},
    }


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


@pytest.mark.parametrize("kind", VERSIONS)
@pytest.mark.parametrize("asked", [True, False])
def test_a_tenant_submits_where_the_verb_is_held(play, kind, asked):
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
            code, said = await mallory.try_to("POST", path, group(kind, name, queue=name))
            codes[name] = code
            if code == 403:
                assert "may not submit to the queue theirs" in said["message"]
        assert codes == {"theirs": 403 if asked else 201, "mine": 201, "default": 201}
        moved = {"spec": {"queue": "theirs"}}
        code, _ = await mallory.try_to("PATCH", f"{path}/mine", moved, content_type=MERGE)
        assert code == (403 if asked else 200)
        w.client.patch(
            "namespaces", None, "mallory",
            {"metadata": {"labels": {"gpusched.io/other-scheduler": "volcano"}}},
        )  # fmt: skip
        code, _ = await mallory.try_to("POST", path, group(kind, "free", queue="theirs"))
        assert code == 201

    play(scenario)
