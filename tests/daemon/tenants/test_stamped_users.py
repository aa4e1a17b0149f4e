"""The policy that writes the names of people into what they create, beside the one that checks names."""

from __future__ import annotations

import pytest

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
    made["spec"].get("template", {}).pop("metadata", None)
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
            if kind == "batch/v1/jobs":
                assert ours(made["spec"]["template"]) == STAMPED
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
        if kind == "batch/v1/jobs":
            assert ours(made) == {}
        for notes, why in (({"user": "bob"}, "may not write the user bob"), ({"groups": "x"}, "")):
            with pytest.raises(StatusError) as refused:
                ann.create(RESOURCES[kind], noted(kind, "f", **notes), "default")
            assert (refused.value.code, why in str(refused.value)) == (403, True)
        stamped = ann.create(RESOURCES[kind], without_metadata(kind, "alone"), "default")
        assert stamped["metadata"]["annotations"] == {"gpusched.io/user": "ann"}

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


def test_a_stamped_gang_counts_against_its_users_limit(play):
    """People write no annotation: pods that the Job controller makes count for who made the Job."""

    async def scenario(w):
        await w.start(nodes=3, policies=True, apply=[STAMP])
        w.check_journal = False
        queue(w, "q", userLimits={"perUser": {"resources": {"nvidia.com/gpu": 8}}})
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)

        def submit(name, user):
            acting_as(w, User(user, ("system:masters",))).create("jobs.batch", {
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": name, "labels": {"gpusched.io/queue": "q"}},
                "spec": {"parallelism": 2, "completions": 2, "template": {
                    "metadata": {"annotations": {"gpusched.io/run-for": "10h"}},
                    "spec": pod_spec(4),
                }},
            }, "default")  # fmt: skip

        def pods(job):
            return w.client.list("pods", "default", f"batch.kubernetes.io/job-name={job}")

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
        assert "UserLimit: needs 8 nvidia.com/gpu; user ann holds 8 of at most 8 in queue q" in (
            f"{said['reason']}: {said['message']}"
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
