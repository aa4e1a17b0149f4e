"""Kubernetes' own gangs: groups made by Jobs, kept while in use, with claims of their own."""

from __future__ import annotations

import pytest

from gpusched.devcluster.controllers.jobs.gangs import pod_group_name, workload_name
from gpusched.devcluster.registry.gangs.features import all_gates, read_features

GROUPS = "podgroups.scheduling.k8s.io"
WORKLOADS = "workloads.scheduling.k8s.io"
CLAIMS = "resourceclaims.resource.k8s.io"
TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
GANG = {"schedulingPolicy": {"gang": {"minCount": 2}}}


def group(cluster, name, **spec):
    body = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "spec": {**GANG, **spec},
            "metadata": {"name": name}}  # fmt: skip
    return cluster.client.create(GROUPS, body, "n")


def member(cluster, name, of, **spec):
    return cluster.pod(name, spec={"schedulingGroup": {"podGroupName": of}, **spec})


def indexed(cluster, name="train", **spec):
    whole = {"completionMode": "Indexed", "parallelism": 3, "completions": 3, **spec}
    return cluster.job(name, **whole)


def group_names(cluster):
    return [g["metadata"]["name"] for g in cluster.client.list(GROUPS, "n")]


def test_names_of_groups_are_those_of_a_real_controller():
    """Hash and truncation as kube-controller-manager 1.36.2 computed them."""
    # given Jobs as a real cluster had them
    for name, uid, workload, group in (
        ("a", "5befba3a-91b6-4bb3-9acc-8605f98f4d71", "a-68fbdcd5c5", "79f5c8cf45"),
        ("sus", "4e97b5ae-a738-4813-a9a1-e7e22d7682ea", "sus-54658ffd9d", "9cdc7955d"),
    ):
        # then the names are those that it gave
        assert workload_name({"metadata": {"name": name, "uid": uid}}) == workload
        template = f"{name}-pgt-0"
        assert pod_group_name(workload, template) == f"{workload}-{template}-{group}"
    # and they never exceed 253 characters
    long_name = pod_group_name("w" * 253, "t" * 60)
    assert len(long_name) == 253
    assert "-" + "t" * 60 + "-" in long_name


async def test_a_suspended_job_has_its_group_before_its_pods(start):
    """Workload and group are made at once; resumed, all its pods belong to the group."""
    # given
    cluster = await start(gangs=all_gates("1.36"))
    # when
    indexed(cluster, suspend=True)
    await cluster.clock.advance(1)
    # then
    (made,) = cluster.client.list(GROUPS, "n")
    assert made["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
    assert cluster.pods() == []
    # when
    cluster.client.patch("jobs.batch", "n", "train", {"spec": {"suspend": False}})
    await cluster.clock.advance(1)
    # then
    named = {p["spec"]["schedulingGroup"]["podGroupName"] for p in cluster.pods()}
    assert (len(cluster.pods()), named) == (3, {made["metadata"]["name"]})
    assert cluster.reasons.count("WorkloadCreated") == 1


@pytest.mark.parametrize(
    "spec",
    [
        {"completionMode": "NonIndexed"},
        {"parallelism": 2},
        {"parallelism": 1, "completions": 1},
    ],
)
async def test_jobs_that_are_no_gangs_get_no_group(start, spec):
    """Only an Indexed Job whose pods all run at once is one."""
    cluster = await start(gangs=all_gates("1.36"))
    indexed(cluster, **spec)
    await cluster.clock.advance(1)
    assert cluster.client.list(WORKLOADS, "n") == []
    assert cluster.pods()
    assert all("schedulingGroup" not in p["spec"] for p in cluster.pods())


async def test_jobs_get_no_groups_with_their_gate_closed(start):
    """Groups are served, and Jobs are as before."""
    cluster = await start(gangs=read_features("1.36", "WorkloadWithJob=false"))
    indexed(cluster)
    await cluster.clock.advance(1)
    assert (cluster.client.list(WORKLOADS, "n"), len(cluster.pods())) == ([], 3)


async def test_a_replaced_pod_of_a_job_stays_in_the_group(start):
    """A failed pod's successor is a member as well, and no second group is made."""
    # given a running gang
    cluster = await start(gangs=all_gates("1.36"))
    indexed(cluster, backoffLimit=3)
    await cluster.clock.advance(1)
    (name,) = group_names(cluster)
    # when one of its pods fails
    victim = cluster.pods()[0]["metadata"]["name"]
    failed = {"status": {"phase": "Failed"}}
    cluster.client.patch("pods", "n", victim, failed, subresource="status")
    await cluster.clock.advance(30)
    # then
    alive = [p for p in cluster.pods() if p["status"]["phase"] == "Pending"]
    assert {p["spec"]["schedulingGroup"]["podGroupName"] for p in alive} == {name}
    assert (len(alive), group_names(cluster)) == (3, [name])


async def test_the_group_goes_with_its_job(start):
    """Garbage collection deletes it, and its finalizer goes when its pods are gone."""
    cluster = await start(gangs=all_gates("1.36"))
    indexed(cluster)
    await cluster.clock.advance(1)
    cluster.client.delete("jobs.batch", "n", "train", propagation="Background")
    await cluster.clock.advance(10)
    assert (group_names(cluster), cluster.client.list(WORKLOADS, "n")) == ([], [])


async def test_a_group_stays_until_its_last_pod_has_ended(start):
    """Pods that have ended do not keep it, pods that wait do."""
    # given a group with a waiting and a finished pod
    cluster = await start(gangs=all_gates("1.36"))
    group(cluster, "g")
    for name in ("p1", "p2"):
        member(cluster, name, "g")
    cluster.client.patch("pods", "n", "p1", {"status": {"phase": "Failed"}}, subresource="status")
    await cluster.clock.advance(1)
    # when it is deleted
    cluster.client.delete(GROUPS, "n", "g")
    await cluster.clock.advance(60)
    # then it hangs
    assert group_names(cluster) == ["g"]
    # until the other pod ends
    done = {"status": {"phase": "Succeeded"}}
    cluster.client.patch("pods", "n", "p2", done, subresource="status")
    await cluster.clock.advance(1)
    assert group_names(cluster) == []


async def test_a_pod_of_a_missing_group_waits_for_its_claim(start):
    """The group that comes late makes the claim, and both its pods use it."""
    # given a template, and pods whose group is not there yet
    cluster = await start(gangs=all_gates("1.36"))
    devices = {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "gpu"}}]}}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": {"name": "t"}, "spec": {"spec": devices}}  # fmt: skip
    cluster.client.create(TEMPLATES, body, "n")
    wanted = [{"name": "g", "resourceClaimTemplateName": "t"}]
    own = [*wanted, {"name": "own", "resourceClaimTemplateName": "t"}]
    member(cluster, "p1", "late", resourceClaims=wanted)
    member(cluster, "p2", "late", resourceClaims=own)
    await cluster.clock.advance(5)
    assert cluster.client.list(CLAIMS, "n") == []
    # when it comes
    group(cluster, "late", resourceClaims=wanted)
    await cluster.clock.advance(5)
    # then one claim is shared, and what only the pod names is its own
    owners = sorted(
        c["metadata"]["ownerReferences"][0]["name"] for c in cluster.client.list(CLAIMS, "n")
    )
    assert owners == ["late", "p2"]
    shared = cluster.client.get(GROUPS, "n", "late")["status"]["resourceClaimStatuses"]
    noted = [p["status"]["resourceClaimStatuses"] for p in cluster.pods()]
    assert noted[0] == shared
    assert [entry for entry in noted[1] if entry["name"] == "g"] == shared


async def test_a_reservation_for_a_group_goes_with_the_group(start):
    """While the group is there its entry stays; then the allocation goes with it."""
    # given a claim that is allocated and reserved for a group
    cluster = await start(gangs=all_gates("1.36"))
    made = group(cluster, "g", resourceClaims=[{"name": "x", "resourceClaimName": "c"}])
    spec = {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "gpu"}}]}}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": spec,
            "metadata": {"name": "c", "finalizers": ["resource.kubernetes.io/delete-protection"]}}  # fmt: skip
    cluster.client.create(CLAIMS, body, "n")
    user = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g",
            "uid": made["metadata"]["uid"]}  # fmt: skip
    result = {"request": "g", "driver": "d.io", "pool": "p", "device": "x"}
    state = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
    cluster.client.patch(CLAIMS, "n", "c", {"status": state}, subresource="status")
    await cluster.clock.advance(5)
    assert cluster.client.get(CLAIMS, "n", "c")["status"]["reservedFor"] == [user]
    # when the group goes
    cluster.client.delete(GROUPS, "n", "g")
    await cluster.clock.advance(5)
    # then
    assert cluster.client.get(CLAIMS, "n", "c")["status"] == {}


async def test_the_field_is_dropped_where_gangs_are_not_served(start):
    """As on a real server with its gates closed: in pods and in templates of pods."""
    cluster = await start()
    dropped = member(cluster, "p", "g")
    job = cluster.job("j")
    patch = {"spec": {"template": {"spec": {"schedulingGroup": {"podGroupName": "g"}}}}}
    patched = cluster.client.patch("jobs.batch", "n", "j", patch)
    assert "schedulingGroup" not in dropped["spec"]
    assert patched["spec"] == job["spec"]


def newer_job(cluster, **spec):
    meta = {"name": "train", "namespace": "n"}
    pods = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    whole = {"completionMode": "Indexed", "parallelism": 3, "completions": 3, "template": pods}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {**whole, **spec}}
    return cluster.client.create("jobs.batch", body)


@pytest.mark.parametrize(
    ("scheduling", "policy"),
    [
        (None, {"basic": {}}),
        ({"schedulingPolicy": {"gang": {}}}, {"gang": {"minCount": 3}}),
        ({"schedulingPolicy": {"gang": {"minCount": 2}}}, {"gang": {"minCount": 2}}),
    ],
)
async def test_a_job_of_1_37_says_its_policy(start, scheduling, policy):
    """Without a word it is basic; a gang without a size is as large as the Job."""
    cluster = await start(gangs=all_gates("1.37"))
    newer_job(cluster, **({"scheduling": scheduling} if scheduling else {}))
    await cluster.clock.advance(1)
    (made,) = cluster.client.list(GROUPS, "n")
    assert made["spec"]["schedulingPolicy"] == policy
    (workload,) = cluster.client.list(WORKLOADS, "n")
    link = {"workloadName": workload["metadata"]["name"], "templateName": "train-pgt-0"}
    assert made["spec"]["workloadRef"] == link
    owners = [(o["kind"], o.get("controller", False)) for o in made["metadata"]["ownerReferences"]]
    assert owners == [("Job", True), ("Workload", False)]
    assert {p["spec"]["schedulingGroup"]["podGroupName"] for p in cluster.pods()} == {
        made["metadata"]["name"]
    }
    assert {"WorkloadCreated", "PodGroupCreated"} <= set(cluster.reasons)


async def test_everything_a_job_says_reaches_its_group(start):
    """Topology, disruption, claims and the priority class of its pods."""
    # given
    cluster = await start(gangs=all_gates("1.37"))
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 9,
              "metadata": {"name": "urgent"}}  # fmt: skip
    cluster.client.create("priorityclasses.scheduling.k8s.io", urgent)
    said = {
        "schedulingPolicy": {"gang": {}},
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
        "disruptionMode": {"all": {}},
        "resourceClaims": [{"name": "c", "resourceClaimName": "c"}],
    }
    # when
    pods = {"restartPolicy": "Never", "priorityClassName": "urgent",
            "containers": [{"name": "c", "image": "i"}]}  # fmt: skip
    newer_job(cluster, scheduling=said, template={"spec": pods})
    await cluster.clock.advance(1)
    # then
    spec = cluster.client.list(GROUPS, "n")[0]["spec"]
    kept = {key: spec[key] for key in said if key != "schedulingPolicy"}
    assert kept == {key: said[key] for key in kept}
    assert (spec["priorityClassName"], spec["priority"]) == ("urgent", 9)


async def test_a_gang_of_1_37_follows_the_size_of_its_job(start):
    """Another ``minCount`` of the Job reaches template and group while its pods run."""
    cluster = await start(gangs=all_gates("1.37"))
    newer_job(cluster, scheduling={"schedulingPolicy": {"gang": {"minCount": 2}}})
    await cluster.clock.advance(1)
    patch = {"spec": {"scheduling": {"schedulingPolicy": {"gang": {"minCount": 1}}}}}
    cluster.client.patch("jobs.batch", "n", "train", patch)
    await cluster.clock.advance(1)
    (made,), (workload,) = cluster.client.list(GROUPS, "n"), cluster.client.list(WORKLOADS, "n")
    template = workload["spec"]["podGroupTemplates"][0]
    wanted = {"gang": {"minCount": 1}}
    assert (made["spec"]["schedulingPolicy"], template["schedulingPolicy"]) == (wanted, wanted)


async def test_a_job_of_a_controller_makes_its_group_from_the_controllers_workload(start):
    """Only with the annotation that names a template; without it the controller does all."""
    # given a Workload of a JobSet, and Jobs of it with and without the annotation
    cluster = await start(gangs=all_gates("1.37"))
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "u"}
    spec = {
        "controllerRef": {"apiGroup": "jobset.x-k8s.io", "kind": "JobSet", "name": "set"},
        "podGroupTemplates": [{"name": "workers", "schedulingPolicy": {"gang": {"minCount": 3}}}],
    }
    body = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "Workload",
            "metadata": {"name": "w"}, "spec": spec}  # fmt: skip
    cluster.client.create(WORKLOADS, body, "n")
    named = {"scheduling.k8s.io/group-template-name": "workers"}
    # when
    cluster.client.create("jobs.batch", _owned_job("with", owner, named))
    cluster.client.create("jobs.batch", _owned_job("without", owner, {}))
    await cluster.clock.advance(1)
    # then
    (made,) = cluster.client.list(GROUPS, "n")
    assert made["metadata"]["name"] == pod_group_name("w", "workers")
    assert [o["name"] for o in made["metadata"]["ownerReferences"]] == ["with"]
    members = {
        p["metadata"]["labels"]["job-name"]
        for p in cluster.pods()
        if "schedulingGroup" in p["spec"]
    }
    assert members == {"with"}


def _owned_job(name, owner, annotations):
    pods = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    meta = {"name": name, "namespace": "n", "annotations": annotations,
            "ownerReferences": [{**owner, "controller": True}]}  # fmt: skip
    spec = {"completionMode": "Indexed", "parallelism": 3, "completions": 3, "template": pods}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
