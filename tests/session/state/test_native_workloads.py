"""Gangs of Kubernetes 1.35, and what Workloads and owners say about native groups."""

from __future__ import annotations

import json

import pytest

from gpusched.api.foreign import kinds, pod_groups, workload_decode
from gpusched.api.jobs.decode import JOBS
from gpusched.api.meta.identity import ObjectKey
from gpusched.api.pod.decode import PODS
from gpusched.api.policy.decode import NAMESPACES
from gpusched.cache.cache import Cache

QUEUE = "gpusched.io/queue"


def decoded(codec, name, spec, **metadata):
    """An object of the namespace default as it is read."""
    meta = {
        "name": name, "namespace": "default", "uid": f"u-{name}", "resourceVersion": "1", **metadata,
    }  # fmt: skip
    thing = {"metadata": meta, "spec": spec, "status": {}}
    return codec.decode_event(json.dumps({"type": "ADDED", "object": thing}).encode()).item


class Known:
    """A cache that is told of objects."""

    def __init__(self) -> None:
        self.cache = Cache(["gpusched"])
        self.cache.families.read = frozenset({"Workload"})

    def pod(self, name, spec, **metadata):
        """A pod of ours."""
        full = {"schedulerName": "gpusched", "containers": [], **spec}
        self.cache.put_pod(decoded(PODS, name, full, **metadata))

    def workload(self, name, spec, **metadata):
        """A native Workload."""
        item = decoded(workload_decode.CODECS["Workload"], name, spec, **metadata)
        self.cache.foreign.put_workload("Workload", item.key, item)

    def group(self, name, spec, **metadata):
        """A native PodGroup."""
        policy = {"schedulingPolicy": {"gang": {"minCount": 1}}}
        codec = pod_groups.CODECS[kinds.NATIVE]
        item = decoded(codec, name, {**policy, **spec}, **metadata)
        self.cache.foreign.groups.put(kinds.NATIVE, item.key, item)

    def tree(self, name, spec, **metadata):
        """A CompositePodGroup that needs one group."""
        policy = {"schedulingPolicy": {"gang": {"minGroupCount": 1}}}
        item = decoded(pod_groups.COMPOSITES, name, {**policy, **spec}, **metadata)
        self.cache.put_composite(item.key, item)

    def gangs(self):
        """All gangs by name."""
        return {gang.key.name: gang for gang in self.cache.take_snapshot(now=1.0).gangs}


def ref(group, key=None):
    """``workloadRef`` of a pod of 1.35."""
    return {"workloadRef": {"name": "w", "podGroup": group, "podGroupReplicaKey": key}}


def test_a_gang_for_each_replica_of_a_group_of_a_workload():
    """Given 1.35's form, each replica key is a gang with its group's minimum."""
    known = Known()
    policy = {"policy": {"gang": {"minCount": 3}}}
    groups = [{"name": "workers", **policy}, {"name": "driver", "policy": {"basic": {}}}]
    known.workload("w", {"podGroups": groups})
    for number in range(2):
        known.pod(f"a-{number}", ref("workers", "0"))
        known.pod(f"b-{number}", ref("workers", "1"))
    known.pod("c", ref("driver"))
    gangs = known.gangs()
    assert {name: gang.min_member for name, gang in gangs.items()} == {
        "w:workers:0": 3, "w:workers:1": 3, "w:driver": 1,
    }  # fmt: skip
    assert gangs["w:workers:0"].pending == 2


@pytest.mark.parametrize("there", [True, False])
def test_a_workload_or_group_that_is_missing_holds_its_pods(there):
    """Given pods that name a group or Workload that is not there, the gang says so."""
    known = Known()
    if there:
        known.workload("w", {"podGroups": [{"name": "other"}]})
    known.pod("a", ref("workers"))
    (gang,) = known.gangs().values()
    why = "has no pod group 'workers'; it has other" if there else "has not been seen yet"
    assert gang.error[0] == "InvalidSpec"
    assert why in gang.error[1]


def names(queue):
    """Labels that name a queue."""
    return {"labels": {QUEUE: queue}}


@pytest.mark.parametrize("said", ["group", "workload", "owner", "controller", "pod", "namespace"])
def test_the_queue_of_a_native_group(said):
    """Given a queue on the object named and all behind it in this order, that one counts."""
    order = ["group", "workload", "owner", "controller", "pod", "namespace"]
    left = order[order.index(said) :]
    known = Known()
    labels = {each: names(each) if each in left else {} for each in order}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": "u-owner"}
    link = {"workloadRef": {"workloadName": "w", "templateName": "t"}}
    known.pod("a", {"schedulingGroup": {"podGroupName": "g"}}, **labels["pod"])
    known.group("g", link, ownerReferences=[owner], **labels["group"])
    known.gangs()  # what comes later counts as well
    known.workload(
        "w", {"controllerRef": {"kind": "Job", "name": "controller"}}, **labels["workload"]
    )
    for name in ("owner", "controller"):
        job = decoded(JOBS, name, {"parallelism": 1, "template": {"spec": {}}}, **labels[name])
        known.cache.put_job(ObjectKey("default", name), job)
    space = decoded(NAMESPACES, "default", {}, **labels["namespace"])
    known.cache.put_namespace(ObjectKey("", "default"), space)
    assert known.gangs()["g"].queue == said


def test_annotations_of_the_owner_stand_in_for_those_of_the_group():
    """Given a walltime on the Job that made the group, the gang has it."""
    known = Known()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-j"}
    known.group("g", {}, ownerReferences=[owner])
    known.pod("a", {"schedulingGroup": {"podGroupName": "g"}})
    notes = {"annotations": {"gpusched.io/expected-duration": "2h"}}
    job = decoded(JOBS, "j", {"parallelism": 1, "template": {"spec": {}}}, **notes)
    known.cache.put_job(ObjectKey("default", "j"), job)
    assert known.gangs()["g"].terms.expected_duration_ns == 2 * 3600 * 10**9


def test_a_group_of_another_scheduler_is_no_gang_of_ours():
    """Given a native group whose pods are not there or name another scheduler, nothing is said."""
    known = Known()
    known.group("g", {})
    assert known.gangs() == {}
    known.pod("theirs", {"schedulingGroup": {"podGroupName": "g"}, "schedulerName": "other"})
    assert known.gangs() == {}
    known.pod("ours", {"schedulingGroup": {"podGroupName": "g"}})
    (gang,) = known.gangs().values()
    assert "1 of 2 are not gpusched's, such as theirs of other" in gang.error[1]
    known.cache.drop_pod(ObjectKey("default", "theirs"))
    assert known.gangs()["g"].error == ("", "")


@pytest.mark.parametrize("said", ["root", "leaf", "pod"])
def test_the_queue_of_a_tree(said):
    """Given a queue on the root, a group of it and a pod, the first of these counts."""
    order = ["root", "leaf", "pod"]
    left = order[order.index(said) :]
    labels = {each: names(each) if each in left else {} for each in order}
    known = Known()
    known.tree("root", {}, **labels["root"])
    known.group("g", {"parentCompositePodGroupName": "root"}, **labels["leaf"])
    known.pod("a", {"schedulingGroup": {"podGroupName": "g"}}, **labels["pod"])
    (gang,) = known.gangs().values()
    assert (gang.key.kind, gang.queue) == ("CompositePodGroup", said)


def test_a_tree_that_changes_is_counted_anew():
    """Given a root that goes and comes back, its groups are held meanwhile."""
    known = Known()
    known.tree("root", {})
    known.group("g", {"parentCompositePodGroupName": "root"})
    known.pod("a", {"schedulingGroup": {"podGroupName": "g"}})
    assert [gang.key.kind for gang in known.gangs().values()] == ["CompositePodGroup"]
    known.cache.drop_composite(ObjectKey("default", "root"))
    (gang,) = known.gangs().values()
    assert gang.key.kind == "PodGroup"
    assert "CompositePodGroup default/root does not exist" in gang.error[1]
    known.tree("root", {})
    assert [gang.key.kind for gang in known.gangs().values()] == ["CompositePodGroup"]
