"""The policy that writes the names of people into what they create, beside the one that checks names."""

from __future__ import annotations

import pytest
import yaml

from gpusched.base import installed_files
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.client.local_client import LocalClient
from gpusched.devcluster.apiserver.rbac.rules import User
from tests.daemon.conftest import pod_spec
from tests.daemon.tenants.test_tenant_queues import queue
from tests.daemon.tenants.test_users import PODGROUPS, POLICIES, noted

STAMP = installed_files.path("manifests") / "policies-stamp"
ANN = User("ann", ("interns", "system:authenticated", "vision"))
RESOURCES = {
    "pods": "pods",
    PODGROUPS: "podgroups.scheduling.gpusched.io",
    "batch/v1/jobs": "jobs.batch",
    "apps/v1/deployments": "deployments.apps",
    "apps/v1/replicasets": "replicasets.apps",
    "apps/v1/statefulsets": "statefulsets.apps",
}
STAMPED = {"gpusched.io/user": "ann", "gpusched.io/groups": "interns,vision"}


def acting_as(w, user: User) -> LocalClient:
    """A client of somebody, about whom policies are asked."""
    return LocalClient(w.client._api, account=user)


def ours(obj) -> dict[str, str]:
    """Annotations of an object or template that say whose work it is."""
    notes = obj.get("metadata", {}).get("annotations", {})
    return {key: notes[key] for key in STAMPED if key in notes}


def without_metadata(kind: str, name: str):
    """An object without annotations, whose template has no metadata at all."""
    made = noted(kind, name)
    made["metadata"].pop("annotations", None)
    template = made["spec"].get("template", {})
    template.get("metadata", {}).pop("annotations", None)
    if template.get("metadata") == {}:
        del template["metadata"]
    return made


@pytest.mark.parametrize("kind", RESOURCES)
def test_what_a_person_creates_has_the_name_and_groups(play, kind):
    """Whatever annotations it has otherwise; the policy that checks names lets it through."""

    async def scenario(w):
        await w.start(nodes=0, apply=[*POLICIES, STAMP])
        ann = acting_as(w, ANN)
        bare = ann.create(RESOURCES[kind], without_metadata(kind, "bare"), "default")
        assert bare["metadata"]["annotations"] == STAMPED
        kept = ann.create(RESOURCES[kind], noted(kind, "kept", **{"run-for": "9s"}), "default")
        for made in (bare, kept):
            assert ours(made) == STAMPED
            assert ours(made["spec"].get("template", made)) == STAMPED
        notes = kept["spec"].get("template", kept)["metadata"]["annotations"]
        assert notes["gpusched.io/run-for"] == "9s"

    play(scenario)


@pytest.mark.parametrize("kind", RESOURCES)
def test_what_names_somebody_stays_as_it_is(play, kind):
    """The own name without a stamp on top; another's is refused as ever, and so are groups alone."""

    async def scenario(w):
        await w.start(nodes=0, apply=[*POLICIES, STAMP])
        ann = acting_as(w, User("ann", ("system:authenticated",)))
        made = ann.create(RESOURCES[kind], noted(kind, "own", user="ann"), "default")
        assert ours(made["spec"].get("template", made)) == {"gpusched.io/user": "ann"}
        if "template" in made["spec"]:
            assert ours(made) == {}
        for notes, why in (({"user": "bob"}, "may not write the user bob"), ({"groups": "x"}, "")):
            with pytest.raises(StatusError) as refused:
                ann.create(RESOURCES[kind], noted(kind, "f", **notes), "default")
            assert (refused.value.code, why in str(refused.value)) == (403, True)
        stamped = ann.create(RESOURCES[kind], without_metadata(kind, "alone"), "default")
        assert stamped["metadata"]["annotations"] == {"gpusched.io/user": "ann"}

    play(scenario)


def stamp_beside(w, group: str) -> None:
    """The shipped policy and its binding, asked about another API group where they are about batch, too."""
    for document in yaml.safe_load_all((STAMP / "users-stamp.yaml").read_text("utf-8")):
        for rule in document["spec"].get("matchConstraints", {}).get("resourceRules", ()):
            if rule["apiGroups"] == ["batch"]:
                assert rule["resources"] == ["jobs", "cronjobs"]
                rule["apiGroups"] = ["batch", group]
        plural = "policybindings" if document["kind"].endswith("Binding") else "policies"
        w.client.create(f"mutatingadmission{plural}.admissionregistration.k8s.io", document)


@pytest.mark.parametrize("kept", [{}, {"gpusched.io/run-for": "9s"}])
def test_a_cron_job_has_them_for_its_jobs_and_their_pods(play, kept):
    """Given one with annotations or without any metadata in its templates, all three places have the name.

    The embedded cluster serves no CronJobs: a custom kind of the same shape stands for them.
    """

    async def scenario(w):
        await w.start(nodes=0, apply=POLICIES)
        w.client.create("customresourcedefinitions.apiextensions.k8s.io", {
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "cronjobs.batch.example.com"},
            "spec": {
                "group": "batch.example.com", "scope": "Namespaced",
                "names": {"kind": "CronJob", "plural": "cronjobs"},
                "versions": [{
                    "name": "v1", "served": True, "storage": True,
                    "schema": {"openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": True,
                    }},
                }],
            },
        })  # fmt: skip
        stamp_beside(w, "batch.example.com")
        await w.clock.sleep(5)

        def create(name, **job_template):
            return acting_as(w, ANN).create("cronjobs.batch.example.com", {
                "apiVersion": "batch.example.com/v1", "kind": "CronJob", "metadata": {"name": name},
                "spec": {"schedule": "0 2 * * *", "jobTemplate": job_template},
            }, "default")  # fmt: skip

        metadata = {"metadata": {"annotations": kept}} if kept else {}
        template = {**metadata, "spec": pod_spec(1)}
        made = create("nightly", **metadata, spec={"template": template})
        job = made["spec"]["jobTemplate"]
        assert ours(made) == STAMPED
        for each in (job, job["spec"]["template"]):
            assert each["metadata"]["annotations"] == STAMPED | kept
        notes = {"metadata": {"annotations": {"gpusched.io/user": "ann"}}}
        named = create("named", spec={"template": {**notes, "spec": pod_spec(1)}})
        assert ours(named) == {}
        assert ours(create("bare")) == STAMPED

    play(scenario)


def test_accounts_of_nodes_services_and_controllers_are_no_persons(play):
    """What they create is not stamped, and neither is a person's object that a controller owns."""

    async def scenario(w):
        await w.start(nodes=0, apply=[*POLICIES, STAMP])
        for name in (
            "system:serviceaccount:kube-system:job-controller",
            "system:serviceaccount:argo:workflows",
            "system:node:node-0",
        ):
            made = acting_as(w, User(name, ())).create(
                "pods", without_metadata("pods", name.rpartition(":")[2]), "default"
            )
            assert ours(made) == {}
        owned = without_metadata("pods", "owned")
        job = acting_as(w, User("system:x", ())).create(
            "jobs.batch", without_metadata("batch/v1/jobs", "j"), "default"
        )
        owned["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "batch/v1", "kind": "Job", "name": "j", "controller": True,
                "uid": job["metadata"]["uid"],
            }
        ]  # fmt: skip
        assert ours(acting_as(w, ANN).create("pods", owned, "default")) == {}

    play(scenario)


@pytest.mark.parametrize("kind", ["Job", "Deployment", "StatefulSet"])
def test_a_stamped_gang_counts_against_its_users_limit(play, kind):
    """People write no annotation: pods that a controller makes count for who made the workload."""

    async def scenario(w):
        await w.start(nodes=3, policies=True, apply=[STAMP])
        w.check_journal = False
        queue(w, "q", userLimits={"perUser": {"resources": {"nvidia.com/gpu": 8}}})
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)

        def submit(name, user):
            labels = {"app": name, "gpusched.io/queue": "q"}
            notes = {"gpusched.io/run-for": "10h"}
            template = {"metadata": {"labels": labels, "annotations": notes}, "spec": pod_spec(4)}
            spec = {"parallelism": 2, "completions": 2, "template": template}
            if kind != "Job":
                template["spec"] = {**pod_spec(4), "restartPolicy": "Always"}
                spec = {
                    "replicas": 2,
                    "template": template,
                    "selector": {"matchLabels": {"app": name}},
                }
            if kind == "StatefulSet":
                spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
            acting_as(w, User(user, ("system:masters",))).create(
                "jobs.batch" if kind == "Job" else f"{kind.lower()}s.apps",
                {
                    "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
                    "kind": kind,
                    "metadata": {"name": name, "labels": {"gpusched.io/queue": "q"}},
                    "spec": spec,
                },
                "default",
            )

        def pods(name):
            return w.client.list("pods", "default", f"app={name}")

        def bound(job):
            return [pod for pod in pods(job) if pod["spec"].get("nodeName")]

        submit("first", "ann")
        await w.until(lambda: len(bound("first")) == 2)
        assert [ours(pod) for pod in bound("first")] == [{"gpusched.io/user": "ann"}] * 2
        submit("second", "ann")
        submit("third", "bob")
        await w.until(lambda: len(bound("third")) == 2)
        await w.clock.sleep(10)
        assert bound("second") == []
        (said,) = [
            c for c in pods("second")[0]["status"]["conditions"] if c["type"] == "PodScheduled"
        ]
        needs = 8 if kind == "Job" else 4  # a Job starts as a whole, other pods one by one
        assert (
            f"UserLimit: needs {needs} nvidia.com/gpu; user ann holds 8 of at most 8 in queue q"
            in (f"{said['reason']}: {said['message']}")
        )
        await daemon.stop()

    play(scenario)


def test_a_stamp_stays_through_patches_and_cannot_be_replaced_away(play):
    """Who applies the same again keeps it; a whole object without it is refused with the reason."""

    async def scenario(w):
        await w.start(nodes=0, apply=[*POLICIES, STAMP])
        ann = acting_as(w, ANN)
        kind = RESOURCES[PODGROUPS]
        made = ann.create(kind, without_metadata(PODGROUPS, "g"), "default")
        changed = ann.patch(kind, "default", "g", {"metadata": {"labels": {"a": "b"}}})
        assert ours(changed) == STAMPED
        bare = {**changed, "metadata": {**changed["metadata"], "annotations": {}}}
        with pytest.raises(StatusError, match="stay as they were created"):
            ann.update(kind, bare)
        assert ours(w.client.get(kind, "default", "g")) == ours(made)

    play(scenario)
