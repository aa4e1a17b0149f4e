"""Pods: what the API says becomes what scheduling reads, and nothing else is believed."""

from __future__ import annotations

import copy

import pytest

from gpusched.api.affinity.selector import NodeTerm, Requirement, Toleration
from gpusched.api.meta.identity import UID, ObjectKey, Owner, Rejected
from gpusched.api.meta.resources import Resources
from gpusched.api.pod.gang_annotations import _read_gang_annotations
from gpusched.api.pod.pod import NO_GANG_ANNOTATIONS, GangAnnotations, PodPhase

NEED = Resources.of(
    {"cpu": 7500, "memory": 64 * 2**30, "nvidia.com/gpu": 4000, "pods": 1},
)


def bound(pod, **notes):
    """The same pod on node n1, with annotations of ours."""
    made = copy.deepcopy(pod)
    made["spec"]["nodeName"] = "n1"
    made["status"]["phase"] = "Running"
    made["metadata"]["annotations"].update({f"gpusched.io/{k}": v for k, v in notes.items()})
    return made


def test_a_pending_pod_says_what_it_is(wire, pod):
    """Every field that scheduling reads arrives."""
    read = wire.read("pods", pod)
    assert ObjectKey("team-a", "train-0-abcde") == read.key
    assert UID("9f3c7a10-0000-4000-8000-000000000001") == read.uid
    assert read.resource_version == "1201"
    assert read.created == 1767225600.0
    assert read.owner == Owner("Job", "train", UID("u1"))
    assert (read.scheduler, read.priority, read.priority_class) == ("gpusched", 100, "high")
    assert (read.rank, read.node, read.phase) == (3, "", PodPhase.PENDING)
    assert (read.unschedulable_reason, read.unschedulable) == ("Unschedulable", "waits for quota")
    assert (read.deleting, read.gated, read.finished, read.holds) == (False,) * 4
    assert read.hints == NO_GANG_ANNOTATIONS
    assert read.pod_class.requests == NEED
    assert (read.pod_class.gpu, read.pod_class.gpus) == ("nvidia.com/gpu", 4)
    assert read.pod_class.tolerations == (
        Toleration("node.kubernetes.io/not-ready", "Exists", "", "NoExecute"),
    )
    assert read.pod_class.unsupported == ""


def test_a_bound_pod_tells_its_slots_and_with_a_fence_its_plan(wire, pod):
    """Slots are left free of others whoever wrote them; a plan is ours only with a fence."""
    ours = wire.read("pods", bound(pod, slots="0,2,4,6", plan="p-1", fence="7", seal="s"))
    assert (ours.slots, ours.plan, ours.fence, ours.holds) == (0b1010101, "p-1", "7", True)
    assert (ours.seal, ours.slots_error) == ("s", "")
    others = wire.read("pods", bound(pod, slots="0,2,4,6", plan="p-1"))
    assert (others.slots, others.plan, others.fence) == (0b1010101, "", "")
    pending = bound(pod, slots="0,2,4,6", plan="p-1", fence="7", seal="s")
    del pending["spec"]["nodeName"]
    early = wire.read("pods", pending)
    assert (early.slots, early.plan, early.fence, early.seal) == (0, "", "", "")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0,0", "cannot be read ('0,0' is no list of slots)"),
        ("0,1,2", "claims 3 GPUs and it asks for 4"),
        ("7", "claims 1 GPU and it asks for 4"),
        ("0,1,2,3,4", "claims 5 GPUs and it asks for 4"),
    ],
)
def test_slots_that_are_not_as_many_as_it_asks_for_do_not_count(wire, pod, text, why):
    """The pod is itself all the same; nobody knows which slots it has."""
    read = wire.read("pods", bound(pod, slots=text, fence="7"))
    assert (read.slots, read.pod_class.gpus, read.fence) == (0, 4, "7")
    assert read.slots_error == f"its annotation gpusched.io/slots {why}"


def test_times_of_scheduling(wire, pod):
    """A scheduled pod has the time of its condition and no reason for waiting."""
    pod["status"]["conditions"] = [
        {"type": "Ready", "status": "False", "reason": "X"},
        {
            "type": "PodScheduled",
            "status": "True",
            "lastTransitionTime": "2026-01-01T00:01:00Z",
            "reason": "old",
        },
    ]
    read = wire.read("pods", pod)
    assert (read.scheduled, read.unschedulable, read.unschedulable_reason) == (1767225660.0, "", "")


def test_gates_and_deletion(wire, pod):
    """A gate or a deletion keeps a pod from being placed."""
    pod["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    read = wire.read("pods", pod)
    assert read.gated
    assert read.deleting


def test_null_is_absent(wire, pod):
    """``null`` in place of any list, map or optional value means that there is none."""
    pod["metadata"].update(labels=None, annotations=None, ownerReferences=None)
    pod["spec"].update(
        tolerations=None,
        initContainers=None,
        nodeSelector=None,
        affinity=None,
        overhead=None,
        schedulingGates=None,
        priority=None,
        priorityClassName=None,
        topologySpreadConstraints=None,
        resourceClaims=None,
        resources=None,
    )
    pod["spec"]["containers"][0]["ports"] = None
    pod["status"]["conditions"] = None
    read = wire.read("pods", pod)
    assert (read.labels, read.owner, read.priority, read.rank) == ({}, None, 0, -1)
    assert read.pod_class.requests == NEED
    assert read.pod_class.affinity is None


PRECEDENCE = [
    ("group", "label", "gpusched.io/pod-group"),
    ("group", "label", "scheduling.x-k8s.io/pod-group"),
    ("group", "annotation", "scheduling.k8s.io/group-name"),
    ("group", "annotation", "scheduling.volcano.sh/group-name"),
    ("queue", "label", "gpusched.io/queue"),
    ("queue", "label", "kueue.x-k8s.io/queue-name"),
    ("queue", "label", "scheduling.volcano.sh/queue-name"),
    ("queue", "annotation", "scheduling.volcano.sh/queue-name"),
    ("queue", "label", "kai.scheduler/queue"),
    ("role", "label", "gpusched.io/role"),
    ("role", "annotation", "volcano.sh/task-spec"),
]


@pytest.mark.parametrize("attribute", ["group", "queue", "role"])
def test_ours_wins_then_the_others_in_order(wire, pod, attribute):
    """With all names of all schedulers on it, taking them away one by one shows the order."""
    sources = [each for each in PRECEDENCE if each[0] == attribute]
    for number, (_, place, key) in enumerate(sources):
        pod["metadata"][f"{place}s"][key] = f"v{number}"
    seen = []
    for _, place, key in sources:
        seen.append(getattr(wire.read("pods", pod), attribute))
        del pod["metadata"][f"{place}s"][key]
    assert seen == [f"v{number}" for number in range(len(sources))]
    assert getattr(wire.read("pods", pod), attribute) == ""


def test_rank_comes_from_the_index(wire, pod):
    """Label before annotation, Job before StatefulSet, -1 without any."""
    labels, notes = pod["metadata"]["labels"], pod["metadata"]["annotations"]
    notes["batch.kubernetes.io/job-completion-index"] = "5"
    labels["apps.kubernetes.io/pod-index"] = "12345"
    assert wire.read("pods", pod).rank == 3
    del labels["batch.kubernetes.io/job-completion-index"]
    assert wire.read("pods", pod).rank == 5
    del notes["batch.kubernetes.io/job-completion-index"]
    assert wire.read("pods", pod).rank == 12345
    del labels["apps.kubernetes.io/pod-index"]
    assert wire.read("pods", pod).rank == -1


def test_hints_stand_in_for_a_pod_group(wire, pod):
    """Our annotations, and those of others where ours are silent."""
    notes = pod["metadata"]["annotations"]
    notes.update(
        {
            "kueue.x-k8s.io/podset-required-topology": "block",
            "kueue.x-k8s.io/podset-preferred-topology": "rack",
            "scheduling.volcano.sh/group-min-member": "3",
        }
    )
    assert wire.read("pods", pod).hints == GangAnnotations(3, "block", "rack")
    notes.update(
        {
            "gpusched.io/min-member": "8",
            "gpusched.io/topology-required": "zone",
            "gpusched.io/topology-preferred": "host",
            "gpusched.io/expected-duration": "1h30m",
            "gpusched.io/preemptible": "false",
            "gpusched.io/min-runtime": "10m",
        }
    )
    assert wire.read("pods", pod).hints == GangAnnotations(
        8, "zone", "host", 5400 * 10**9, False, 600 * 10**9
    )


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("min-member", "many", "'many' is not a whole number"),
        ("min-member", "", "'' is not a whole number"),
        ("min-member", "0", "0 is not between 1 and 10,000"),
        ("min-member", "10001", "10001 is not between 1 and 10,000"),
        ("min-member", "\u0663", "is not a whole number"),
        ("min-member", "9" * 400, "is not a whole number"),
        ("preemptible", "maybe", "'maybe' is neither true nor false"),
        ("expected-duration", "soon", "'soon' is not a duration"),
        ("min-runtime", "-1s", "'-1s' is negative"),
        ("topology-required", "x" * 318, "is no level of a topology"),
        ("topology-preferred", "a\nb", "'a\\nb' is no level of a topology"),
    ],
)
def test_a_malformed_annotation_rejects_its_pod(wire, pod, name, text, says):
    """The field is named, the reason is one short line, the scheduler's name is there."""
    pod["metadata"]["annotations"][f"gpusched.io/{name}"] = text
    read = wire.read("pods", pod)
    assert isinstance(read, Rejected)
    assert read.field == f"metadata.annotations[gpusched.io/{name}]"
    assert says in read.why
    assert read.message.isprintable()
    assert len(read.message) < 700
    assert (read.scheduler, read.charge, read.ours) == ("gpusched", None, False)


def test_no_cache_keeps_what_nobody_checked(wire, pod):
    """A losing annotation of 256 KiB is neither an error nor remembered."""
    pod["metadata"]["annotations"].update(
        {
            "gpusched.io/topology-required": "rack",
            "kueue.x-k8s.io/podset-required-topology": "x" * 2**18,
        }
    )
    before = _read_gang_annotations.cache_info().currsize
    assert wire.read("pods", pod).hints == GangAnnotations(topology_required="rack")
    del pod["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"]
    assert wire.read("pods", pod).hints == GangAnnotations(topology_required="rack")
    assert _read_gang_annotations.cache_info().currsize <= before + 1


def test_node_affinity_and_selector(wire, pod):
    """Terms are read, in an order of their own."""
    pod["spec"]["nodeSelector"] = {"b": "2", "a": "1"}
    pod["spec"]["affinity"] = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
                    {"matchExpressions": [{"key": "z", "operator": "In", "values": ["c", "b"]}]},
                ]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 5,
                    "preference": {"matchExpressions": [{"key": "q", "operator": "Exists"}]},
                }
            ],
        },
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
    }
    made = wire.read("pods", pod).pod_class
    assert made.node_selector == (("a", "1"), ("b", "2"))
    assert made.affinity == (
        NodeTerm((), (Requirement("metadata.name", "In", ("n1",)),)),
        NodeTerm((Requirement("z", "In", ("b", "c")),)),
    )
    assert made.preferred == ((5, NodeTerm((Requirement("q", "Exists"),))),)
    assert made.unsupported == ""
