"""Whose work it is: the policy holds the annotation to be the creator's own, and queues limit by it."""

from __future__ import annotations

import pytest
import yaml

from gpusched.base import installed_files
from tests.daemon.conftest import pod_spec
from tests.daemon.tenants.tenants import MERGE, tenant
from tests.daemon.tenants.test_tenant_queues import queue

PODGROUPS = "scheduling.gpusched.io/v1alpha1/podgroups"
POLICIES = [
    installed_files.path("manifests") / name
    for name in ("namespace.yaml", "lease.yaml", "policies")
]
ME, BOSS = "system:serviceaccount:team:user", "system:serviceaccount:other:user"


WITH_SELECTORS = {
    "apps/v1/deployments": "Deployment",
    "apps/v1/replicasets": "ReplicaSet",
    "apps/v1/statefulsets": "StatefulSet",
}


def noted(kind: str, name: str, **notes: str):
    """An object with annotations of ours, which says nothing else."""
    keys = {f"gpusched.io/{key}": value for key, value in notes.items()}
    head = {"metadata": {"name": name, "annotations": keys}}
    template = {"metadata": {"annotations": keys}, "spec": pod_spec(1)}
    if kind == "pods":
        return {"apiVersion": "v1", "kind": "Pod", **head, "spec": pod_spec(1)}
    if kind == PODGROUPS:
        api = "scheduling.gpusched.io/v1alpha1"
        return {"apiVersion": api, "kind": "PodGroup", **head, "spec": {"minMember": 1}}
    metadata = {"name": name}
    if kind in WITH_SELECTORS:
        labels = {"app": name}
        template["metadata"]["labels"] = labels
        template["spec"] = {**template["spec"], "restartPolicy": "Always"}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        if kind == "apps/v1/statefulsets":
            spec["serviceName"] = name
        return {
            "apiVersion": "apps/v1",
            "kind": WITH_SELECTORS[kind],
            "metadata": metadata,
            "spec": spec,
        }
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template},
    }  # fmt: skip


def test_a_forged_user_is_refused(play):
    """In an object's own annotations or those of its template, at once or later; the own name is taken."""

    async def scenario(w):
        await w.start(nodes=1, apply=POLICIES)
        mine = await tenant(w, "team")
        for kind in ("pods", PODGROUPS, "batch/v1/jobs"):
            code, said = await mine.try_to("POST", mine.path(kind), noted(kind, "f", user=BOSS))
            assert code == 403, said
            assert f"may not write the user {BOSS} into gpusched.io/user" in said["message"]
            code, said = await mine.try_to("POST", mine.path(kind), noted(kind, "own", user=ME))
            assert code == 201, said
        code, said = await mine.try_to(
            "POST", mine.path("pods"), noted("pods", "g", user=ME, groups="admins")
        )
        assert (code, "names all groups of the user" in said["message"]) == (403, True)
        for changed in (BOSS, None):
            body = {"metadata": {"annotations": {"gpusched.io/user": changed}}}
            path = mine.path(PODGROUPS, "own")
            code, said = await mine.try_to("PATCH", path, body, content_type=MERGE)
            assert code == 403, said
            assert changed is not None or "stay as they were created" in said["message"]

    play(scenario)


def test_an_operator_with_the_right_submits_for_others(play):
    """The verb submit-as on one name, and on no other."""

    async def scenario(w):
        await w.start(nodes=1, apply=POLICIES)
        mine = await tenant(w, "team")
        rbac = "rbac.authorization.k8s.io"
        rule = {
            "apiGroups": ["scheduling.gpusched.io"],
            "resources": ["users"],
            "resourceNames": ["ann"],
            "verbs": ["submit-as"],
        }
        head = {"apiVersion": f"{rbac}/v1", "metadata": {"name": "for-ann"}}
        w.client.create(f"clusterroles.{rbac}", {**head, "kind": "ClusterRole", "rules": [rule]})
        w.client.create(
            f"clusterrolebindings.{rbac}",
            {
                **head,
                "kind": "ClusterRoleBinding",
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "for-ann"},
                "subjects": [{"kind": "ServiceAccount", "name": "user", "namespace": "team"}],
            },
        )
        for user, wanted in (("ann", 201), ("bob", 403)):
            body = noted(PODGROUPS, user, user=user, groups="ml")
            code, said = await mine.try_to("POST", mine.path(PODGROUPS), body)
            assert code == wanted, said

    play(scenario)


@pytest.mark.parametrize("named", [True, False])
def test_a_users_limit_is_reached_and_freed(play, named):
    """Pods that the Job controller makes count for who made the Job; others of the queue start."""

    async def scenario(w):
        await w.start(nodes=3, policies=True)
        w.check_journal = False
        queue(w, "q", userLimits={"perUser": {"resources": {"nvidia.com/gpu": 8}}})
        w.client.patch("namespaces", None, "default", {"metadata": {"labels": {"gpusched.io/queue": "q"}}})  # fmt: skip
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)

        def submit(name, user, run_for="10h"):
            job = w.client.create("jobs.batch", {
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {
                    "name": name, "namespace": "default", "labels": {"gpusched.io/queue": "q"},
                    "annotations": {"gpusched.io/user": user} if user else {},
                },
                "spec": {"parallelism": 2, "completions": 2, "template": {
                    "metadata": {"annotations": {"gpusched.io/run-for": run_for}},
                    "spec": pod_spec(4),
                }},
            })  # fmt: skip
            return job["metadata"]["name"]

        def bound(job):
            label = f"batch.kubernetes.io/job-name={job}"
            return [p for p in w.client.list("pods", "default", label) if p["spec"].get("nodeName")]

        user = "ann" if named else ""
        submit("first", user, run_for="60s")
        await w.until(lambda: len(bound("first")) == 2)
        submit("second", user)
        submit("third", "bob")
        await w.until(lambda: len(bound("third")) == 2)
        await w.clock.sleep(10)
        assert bound("second") == []
        waits = w.client.list("pods", "default", "batch.kubernetes.io/job-name=second")[0]
        (said,) = [c for c in waits["status"]["conditions"] if c["type"] == "PodScheduled"]
        who = "user ann holds" if named else "users who are not known together hold"
        assert f"UserLimit: needs 8 nvidia.com/gpu; {who} 8 of at most 8 in queue q" in (
            f"{said['reason']}: {said['message']}"
        )
        await w.until(lambda: len(bound("second")) == 2, within=120)
        await daemon.stop()

    play(scenario)


def ready_message(w, name="q"):
    """What the condition Ready of a queue says."""
    status = w.client.get("queues.scheduling.gpusched.io", None, name).get("status") or {}
    return next((c["message"] for c in status.get("conditions", ()) if c["type"] == "Ready"), "")


def test_without_the_policy_it_is_said_that_limits_by_user_are_not_safe(play):
    """On the Queue that limits users, until the policy is there; not on others."""

    async def scenario(w):
        await w.start(nodes=1)
        queue(w, "q", userLimits={"perUser": {"maxRunning": 1}})
        queue(w, "other")
        daemon = w.daemon()
        await w.until(lambda: "limits by user are not safe" in ready_message(w), within=180)
        assert "has no policy gpusched-users that is bound" in ready_message(w)
        assert ready_message(w, "other") == "the queue takes jobs"
        docs = yaml.safe_load_all(
            (installed_files.path("manifests") / "policies" / "users.yaml").read_text()
        )
        kinds = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
        for kind, doc in zip(kinds, docs, strict=True):
            w.client.create(f"{kind}.admissionregistration.k8s.io", doc)
        await w.until(lambda: ready_message(w) == "the queue takes jobs", within=180)
        warn = {"spec": {"validationActions": ["Warn"]}}
        w.client.patch(f"{kinds[1]}.admissionregistration.k8s.io", None, "gpusched-users", warn)
        await w.until(lambda: "does not deny" in ready_message(w), within=180)
        await daemon.stop()

    play(scenario)
