"""Objects of other projects as our entities: sizes, stages, quotas, and what is not believed."""

from __future__ import annotations

import json

import pytest

from gpusched.api.foreign import kinds, pod_groups, queues, workload_decode
from gpusched.api.foreign.workload import ForeignWorkload, ForeignWorkloadRole
from gpusched.api.gang.pod_group import SubGroup, TopologyRequest
from gpusched.api.jobs.decode import JOBS
from gpusched.api.meta.identity import Rejected
from gpusched.api.pod.decode import PODS


def event(spec, *, namespace="default", status=None, name="x", **metadata):
    """One watch event of an object."""
    meta = {"name": name, "uid": "u", "resourceVersion": "1", **metadata}
    if namespace:
        meta["namespace"] = namespace
    thing = {"metadata": meta, "spec": spec, "status": status}
    return json.dumps({"type": "ADDED", "object": thing}).encode()


def workload(kind, spec, **more) -> ForeignWorkload:
    """A controller's object as it is read."""
    return workload_decode.CODECS[kind].decode_event(event(spec, **more)).item


def group(source, spec, **more):
    """A PodGroup as it is read."""
    return pod_groups.CODECS[source].decode_event(event(spec, **more)).item


def queue(source, spec, **more):
    """A Queue as it is read."""
    return queues.CODECS[source].decode_event(event(spec, namespace="", **more)).item


def job(name, replicas, parallelism, completions=None, **more):
    """A replicated job of a JobSet."""
    spec = {"parallelism": parallelism, "completions": completions}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **more}


REPLICAS = {"Master": {"replicas": 1}, "Worker": {"replicas": 3}}
SIZES = [
    ("JobSet", {"replicatedJobs": [job("a", 2, 3, 2), job("b", 1, 1)]}, [5]),
    ("JobSet", {"replicatedJobs": [job("a", 2, 4), job("b", None, None)]}, [9]),
    (
        "JobSet",
        {
            "replicatedJobs": [job("a", 1, 2), job("b", 1, 3), job("c", 1, 4)],
            "startupPolicy": {"startupPolicyOrder": "InOrder"},
        },
        [2, 3, 4],
    ),
    (
        "JobSet",
        {"replicatedJobs": [job("a", 1, 2), job("b", 1, 3, dependsOn=[{"name": "a"}])]},
        [2, 3],
    ),
    ("LeaderWorkerSet", {"leaderWorkerTemplate": {"size": 4}}, [4]),
    ("LeaderWorkerSet", {"leaderWorkerTemplate": {}}, [1]),
    (
        "LeaderWorkerSet",
        {"leaderWorkerTemplate": {"size": 4}, "startupPolicy": "LeaderReady"},
        [1, 3],
    ),
    ("PyTorchJob", {"pytorchReplicaSpecs": REPLICAS}, [4]),
    (
        "PyTorchJob",
        {
            "pytorchReplicaSpecs": REPLICAS,
            "runPolicy": {"schedulingPolicy": {"minAvailable": 2}},
            "elasticPolicy": {"minReplicas": 1},
        },
        [2],
    ),
    ("PyTorchJob", {"pytorchReplicaSpecs": REPLICAS, "elasticPolicy": {"minReplicas": 2}}, [3]),
    ("TFJob", {"tfReplicaSpecs": {"PS": {"replicas": 2}, "Worker": {"replicas": 4}}}, [6]),
    ("XGBoostJob", {"xgbReplicaSpecs": REPLICAS}, [4]),
    ("JAXJob", {"jaxReplicaSpecs": {"Worker": {"replicas": 5}}}, [5]),
    ("PaddleJob", {"paddleReplicaSpecs": {"Worker": {}}}, [1]),
    ("MPIJob", {"mpiReplicaSpecs": {"Launcher": {}, "Worker": {"replicas": 3}}}, [4]),
    (
        "MPIJob",
        {
            "mpiReplicaSpecs": {"Launcher": {}, "Worker": {"replicas": 3}},
            "launcherCreationPolicy": "WaitForWorkersReady",
        },
        [3, 1],
    ),
    (
        "MPIJob",
        {
            "mpiReplicaSpecs": {"Launcher": {}, "Worker": {"replicas": 3}},
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runPolicy": {"schedulingPolicy": {"minAvailable": 3}},
        },
        [3, 1],
    ),
    ("RayCluster", {}, [1]),
    (
        "RayCluster",
        {
            "workerGroupSpecs": [
                {"groupName": "a", "replicas": 3, "minReplicas": 2, "numOfHosts": 4},
                {"groupName": "b", "replicas": 2, "minReplicas": 0},
                {"groupName": "c", "replicas": 9, "suspend": True},
            ]
        },
        [11],
    ),
]


@pytest.mark.parametrize(("kind", "spec", "needs"), SIZES)
def test_members_that_start_together_in_each_stage(kind, spec, needs):
    """Given the object, its stages need so many members each."""
    assert [need for _, need in workload(kind, spec).stages()] == needs


def test_finished_jobs_are_left_out():
    """Given one of two replicas that succeeded, half of the pods are still needed."""
    status = {"replicatedJobsStatus": [{"name": "a", "succeeded": 1, "failed": 0}]}
    found = workload("JobSet", {"replicatedJobs": [job("a", 2, 3, 3)]}, status=status)
    assert found.parts == (ForeignWorkloadRole("a", 3, late=False, finished=3),)


def test_exclusive_placement_waits_for_nobody_who_is_not_made_yet():
    """Their controllers make followers only when the leader has a node: leaders go first."""
    key = "alpha.jobset.sigs.k8s.io/"
    notes = {f"{key}exclusive-topology": "example.com/rack"}
    spec = {"replicatedJobs": [job("a", 2, 3)]}
    found = workload("JobSet", spec, annotations=notes)
    assert [need for _, need in found.stages()] == [2]
    assert "exclusive-topology" in found.warning
    selected = workload("JobSet", spec, annotations={**notes, f"{key}node-selector": "true"})
    assert [need for _, need in selected.stages()] == [6]
    lws = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "example.com/rack"}
    leader = workload("LeaderWorkerSet", {"leaderWorkerTemplate": {"size": 3}}, annotations=lws)
    assert [need for _, need in leader.stages()] == [1, 2]


def test_a_workload_larger_than_any_gang_is_refused():
    """Given a million pods, the object cannot be believed and says so."""
    found = workload("JobSet", {"replicatedJobs": [job("a", 1000, 1000)]})
    assert isinstance(found, Rejected)
    assert found.why == "asks for 1,000,000 pods, more than 10,000"


def test_volcano_group_with_all_its_wishes():
    """Queue, minima, class, resources and tiers are read; soft without a tier is the narrowest."""
    spec = {
        "minMember": 3,
        "minTaskMember": {"worker": 2, "master": 1},
        "queue": "team",
        "priorityClassName": "high",
        "minResources": {"nvidia.com/gpu": 3},
        "networkTopology": {"mode": "hard", "highestTierAllowed": 2},
    }
    found = group(kinds.VOLCANO, spec)
    assert (found.min_member, found.queue, found.priority_class) == (3, "team", "high")
    assert found.min_task_member == (("master", 1), ("worker", 2))
    assert found.min_resources.get("nvidia.com/gpu") == 3000
    assert found.topology.required == "tier:2"
    soft = group(kinds.VOLCANO, {"networkTopology": {"mode": "soft"}})
    assert (soft.topology.preferred, soft.min_member) == ("tier:1", 1)
    both = {"networkTopology": {"highestTierAllowed": 1, "highestTierName": "rack"}}
    assert isinstance(group(kinds.VOLCANO, both), Rejected)


def test_native_group_of_any_version():
    """The gang's count and its topology key; once scheduled it counts as started."""
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 4}},
        "schedulingConstraints": {"topology": [{"key": "example.com/rack"}]},
    }
    status = {"conditions": [{"type": "PodGroupScheduled", "status": "True"}]}
    found = group(kinds.NATIVE, spec, status=status)
    assert (found.min_member, found.phase) == (4, "Running")
    assert found.topology.required == "example.com/rack"
    assert group(kinds.NATIVE, {"schedulingPolicy": {"basic": {}}}).min_member == 1


def test_kai_sub_groups_with_children():
    """Those with children need all of these complete; minima of their own are told."""
    parts = [
        {"name": "slice", "minMember": 4, "topologyConstraint": {"requiredTopologyLevel": "rack"}},
        {"name": "a", "minMember": 2, "parent": "slice"},
        {"name": "b", "minMember": 3, "parent": "slice"},
    ]
    made = group(kinds.KAI, {"minMember": 1, "subGroups": parts})
    assert (made.min_member, made.min_sub_groups) == (5, 1)
    assert made.sub_groups == (
        SubGroup("slice", 0, TopologyRequest(required="rack"), min_sub_groups=2),
        SubGroup("a", 2, TopologyRequest(), "slice"),
        SubGroup("b", 3, TopologyRequest(), "slice"),
    )
    assert "minMember of slice is not honoured" in made.warning


def test_kai_group_that_needs_some_of_its_sub_groups():
    """``minSubGroup`` is ours in the plural, of the group and of a sub-group; more than there are is refused."""
    parts = [{"name": name, "minMember": 2} for name in "abc"]
    made = group(kinds.KAI, {"minSubGroup": 2, "subGroups": parts})
    assert (made.min_sub_groups, made.min_member) == (2, 4)
    inside = [{"name": "top", "minSubGroup": 1}, *({**part, "parent": "top"} for part in parts)]
    nested = group(kinds.KAI, {"subGroups": inside})
    assert (nested.sub_groups[0].min_sub_groups, nested.min_member) == (1, 2)
    refused = group(kinds.KAI, {"minSubGroup": 4, "subGroups": parts})
    assert isinstance(refused, Rejected)
    assert "asks for 4 of 3 subGroups" in refused.message


def test_kai_group_whose_extras_may_leave():
    """Semi-preemptible: its minimum is not evicted. What protects more of it is not read, and that is said."""
    made = group(kinds.KAI, {"minMember": 2, "preemptibility": "semi-preemptible"})
    assert (made.terms.disruption, made.warning) == ("Extras", "")
    more = {"minMember": 2, "preemptibility": "semi-preemptible", "minNonPreemptible": 3}
    assert "minNonPreemptible is not honoured" in group(kinds.KAI, more).warning
    unknown = group(kinds.KAI, {"preemptibility": "sometimes"})
    assert isinstance(unknown, Rejected)
    assert (
        "'sometimes' is none of preemptible, semi-preemptible, non-preemptible" in unknown.message
    )


def test_kai_group_and_queue():
    """-1 is no limit, 0 is nothing, a quota above the limit is the limit; megabytes are 10**6."""
    made = group(kinds.KAI, {"minMember": 2, "queue": "q", "preemptibility": "non-preemptible"})
    assert (made.min_member, made.queue, made.terms.preemptible) == (2, "q", False)
    found = queue(
        kinds.KAI,
        {
            "parentQueue": "dept",
            "priority": 200,
            "resources": {
                "gpu": {"quota": 4, "limit": 2, "overQuotaWeight": 3},
                "cpu": {"quota": -1, "limit": 0},
                "memory": {"quota": 5, "limit": -1},
            },
        },
    )
    assert (found.parent, found.priority, found.weight) == ("dept", 200, 3)
    assert dict(found.deserved.items) == {"nvidia.com/gpu": 2000, "memory": 5_000_000}
    assert dict(found.capability.items) == {"nvidia.com/gpu": 2000, "cpu": 0}


def test_volcano_queue():
    """All its quotas; a closed one takes nothing new; fifo is strict."""
    spec = {
        "weight": 3,
        "parent": "root",
        "capability": {"cpu": 4},
        "deserved": {"cpu": "2"},
        "guarantee": {"resource": {"cpu": 1}},
        "reclaimable": False,
        "dequeueStrategy": "fifo",
    }
    found = queue(kinds.VOLCANO, spec, status={"state": "Closing"})
    assert (found.weight, found.parent, found.reclaimable) == (3, "root", False)
    assert [amounts.get("cpu") for amounts in (found.guarantee, found.deserved)] == [1000, 2000]
    assert (found.ordering, found.stop_policy) == ("StrictFifo", "Hold")


def pod(labels=None, annotations=None, *, owner=None, spec=None):
    """A pod as it is read."""
    kind, name = owner or ("", "")
    references = [{"kind": kind, "name": name, "uid": "o", "controller": True}]
    metadata = {
        "labels": labels or {},
        "annotations": annotations or {},
        "ownerReferences": references if owner else [],
    }
    item = PODS.decode_event(event({"containers": [], **(spec or {})}, status={}, **metadata)).item
    assert not isinstance(item, Rejected), item
    return item


NATIVE_GROUP = {"schedulingGroup": {"podGroupName": "native"}}
PRECEDENCE = [
    ("gpusched.io/pod-group", "own", "labels"),
    ("", "native", "spec"),
    ("scheduling.x-k8s.io/pod-group", "co", "labels"),
    ("scheduling.k8s.io/group-name", "volcano", "annotations"),
    ("pod-group-name", "kai", "annotations"),
]


@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_who_names_the_group(first):
    """Given all conventions from one on, the first of them names the group."""
    parts = {"labels": {"kueue.x-k8s.io/pod-group-name": "k"}, "annotations": {}, "spec": {}}
    for key, value, where in PRECEDENCE[first:]:
        parts[where].update({key: value} if key else NATIVE_GROUP)
    found = pod(parts["labels"], parts["annotations"], spec=parts["spec"])
    assert (found.group, found.family) == (PRECEDENCE[first][1], None)


def test_ranks_follow_the_controllers():
    """Leaders first, then jobs of a JobSet in order, then the index inside."""
    job_set = {"jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/job-global-index": "7"}
    index = {"batch.kubernetes.io/job-completion-index": "3"}
    found = pod({**job_set, **index})
    assert (found.block, found.rank) == (7, 3)
    training = {"training.kubeflow.org/job-name": "t", "training.kubeflow.org/replica-index": "2"}
    kind = "training.kubeflow.org/replica-type"
    owner = ("PyTorchJob", "t")
    assert pod({**training, kind: "master"}, owner=owner).block == 0
    worker = pod({**training, kind: "worker"}, owner=owner)
    assert (worker.block, worker.rank, worker.role) == (1, 2, "worker")
    assert worker.family is not None
    assert (worker.family.kind, worker.family.name) == ("PyTorchJob", "t")
    ray = {"ray.io/cluster": "r", "ray.io/node-type": "worker", "ray.io/group": "g"}
    replica = {"ray.io/worker-group-replica-index": "4", "ray.io/replica-host-index": "1"}
    assert (pod({**ray, **replica}).block, pod({**ray, **replica}).rank) == (5, 1)
    assert pod({"volcano.sh/task-index": "6"}).rank == 6


def test_volcano_words_on_preemption():
    """Whatever is not true is false; the cooldown protects from the start."""
    found = pod(annotations={"volcano.sh/preemptable": "yes", "volcano.sh/cooldown-time": "90s"})
    assert (found.hints.preemptible, found.hints.min_runtime_ns) == (False, 90 * 10**9)
    assert pod(annotations={"volcano.sh/preemptable": "true"}).hints.preemptible is True


def test_a_suspended_job_of_a_job_set_is_not_ours_to_start():
    """Its JobSet suspends it and starts it; a CronJob's Job is as any other."""
    spec = {
        "suspend": True,
        "template": {"metadata": {"labels": {"gpusched.io/queue": "q"}}, "spec": {}},
    }

    def read(kind):
        owner = {"kind": kind, "name": "o", "uid": "o", "controller": True}
        return JOBS.decode_event(event(spec, ownerReferences=[owner])).item

    assert read("JobSet").template is None
    assert read("CronJob").template is not None


@pytest.mark.parametrize(
    "kind", ["PyTorchJob", "TFJob", "XGBoostJob", "JAXJob", "PaddleJob", "MPIJob"]
)
def test_a_training_job_that_names_a_queue_twice(kind):
    """Its own label counts before the words of its policy."""
    spec = {"runPolicy": {"schedulingPolicy": {"queue": "theirs"}}}
    assert workload(kind, spec, labels={"gpusched.io/queue": "ours"}).queue == "ours"
    assert workload(kind, spec).queue == "theirs"
