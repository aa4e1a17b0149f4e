"""Nodes, queues, pod groups, topologies and the rest: fields, defaults, refusals."""

from __future__ import annotations

import json

import msgspec
import pytest

from gpusched.api.affinity.selector import EVERYTHING, Requirement, Selector, Taint
from gpusched.api.gang.pod_group import SubGroup, TopologyRequest
from gpusched.api.meta.identity import ObjectKey, Rejected
from gpusched.api.meta.resources import Resources
from gpusched.api.meta.status import Condition
from gpusched.api.pod.gang_annotations import MAX_EXEC_LABEL
from gpusched.api.pod.pod import GangAnnotations
from gpusched.api.policy.kinds import QuotaScope
from gpusched.api.queue.queue import NodePool

MINUTE = 60 * 10**9


def test_a_node(wire, node):
    """Hard taints, amounts, layout, readiness."""
    read = wire.read("nodes", node)
    assert (read.name, read.not_ready, read.unschedulable) == ("n1", "", False)
    assert read.labels["gpusched.io/rack"] == "r1"
    assert read.taints == (Taint("gpu", "yes", "NoSchedule"), Taint("gone", "", "NoExecute"))
    assert read.layout == ((0, 1), (2, 3))
    assert read.allocatable == Resources.of(
        {"cpu": 64_000, "memory": 2**40, "nvidia.com/gpu": 4000, "pods": 110}
    )


@pytest.mark.parametrize(
    ("conditions", "says"),
    [
        (None, "Ready condition is missing"),
        ([{"type": "DiskPressure", "status": "True"}], "Ready condition is missing"),
        (
            [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}],
            "Ready is False (KubeletNotReady)",
        ),
        ([{"type": "Ready", "status": "Unknown"}], "Ready is Unknown"),
        ([{"type": "Ready"}], "Ready is not set"),
    ],
)
def test_a_node_that_is_not_ready_says_why(wire, node, conditions, says):
    """No condition is no readiness."""
    node["status"]["conditions"] = conditions
    assert wire.read("nodes", node).not_ready == says


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", "{}", "[[0,0]]", "[[0],[]]", "[[-1]]", "[[1024]]", '[["0"]]', "[" * 3000],
)
def test_a_bad_layout_says_nothing(wire, node, text):
    """The node works on as if nothing was known about its links."""
    node["metadata"]["annotations"]["gpusched.io/gpu-layout"] = text
    assert wire.read("nodes", node).layout == ()


def test_a_node_whose_amounts_cannot_be_believed(wire, node):
    """Placing on it could only go wrong."""
    node["status"]["allocatable"]["nvidia.com/gpu"] = "9223372036854775808"
    read = wire.read("nodes", node)
    assert isinstance(read, Rejected)
    assert (read.field, read.key) == ("status.allocatable", ObjectKey("", "n1"))
    assert "nvidia.com/gpu: '9223372036854775808'" in read.why


def test_a_fresh_node(wire, node):
    """Before its kubelet has reported it offers nothing."""
    node.update(spec={}, status={})
    read = wire.read("nodes", node)
    assert (read.allocatable, read.taints) == (Resources(), ())
    assert read.not_ready == "Ready condition is missing"


def test_an_empty_pod_group(wire, custom):
    """Every field has its default."""
    item = custom("PodGroup", {}, namespace="a")
    del item["spec"]
    read = wire.read("podgroups", item)
    assert (read.key, read.queue, read.min_member) == (ObjectKey("a", "g"), "default", 1)
    assert (read.sub_groups, read.min_sub_groups, read.terms.preemptible) == ((), 0, None)
    assert (read.topology, read.phase) == (TopologyRequest(), "Pending")
    assert (read.status, read.conditions, read.generation) == (b"{}", (), 2)


def test_a_full_pod_group(wire, custom):
    """Every field arrives; unknown parts of the status are kept, not read."""
    item = custom(
        "PodGroup",
        {
            "queue": "llm",
            "minMember": 6,
            "minTaskMember": {"worker": 4, "master": 1},
            "minResources": {"nvidia.com/gpu": 32, "cpu": "0.5"},
            "priorityClassName": "high",
            "preemptible": False,
            "subGroups": [
                {"name": "tp-1", "minMember": 2, "topology": {"required": "rack"}},
                {"name": "tp-0"},
            ],
            "minSubGroups": 1,
            "topology": {"preferred": "block", "maxWait": "5m"},
            "expectedDuration": "1h",
            "minRuntime": "10m",
            "scheduleTimeout": "2m",
            "disruption": {"mode": "Group"},
        },
        namespace="a",
    )
    item["status"] = {
        "running": 2,
        "phase": "Running",
        "future": {"b": 1, "a": [1.5]},
        "conditions": [
            {
                "type": "Scheduled",
                "status": "True",
                "reason": "Scheduled",
                "message": "6 pods",
                "observedGeneration": 2,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
    }
    read = wire.read("podgroups", item)
    assert (read.queue, read.min_member, read.priority_class) == ("llm", 6, "high")
    assert read.min_task_member == (("master", 1), ("worker", 4))
    assert read.min_resources == Resources.of({"nvidia.com/gpu": 32_000, "cpu": 500})
    assert read.terms.preemptible is False
    assert read.sub_groups == (
        SubGroup("tp-1", 2, TopologyRequest("rack")),
        SubGroup("tp-0", 1, TopologyRequest()),
    )
    assert read.min_sub_groups == 1
    assert read.topology == TopologyRequest("", "block", 5 * MINUTE)
    assert read.terms.expected_duration_ns == 60 * MINUTE
    assert (read.terms.min_runtime_ns, read.terms.schedule_timeout_ns) == (10 * MINUTE, 2 * MINUTE)
    assert read.phase == "Running"
    condition = Condition("Scheduled", "True", "Scheduled", "6 pods", 2, 1767225600.0)
    assert read.condition("Scheduled") == condition
    assert json.loads(read.status) == item["status"]
    assert read.status == msgspec.json.encode(item["status"], order="sorted")


def test_min_member_left_out_is_the_sum_of_roles(wire, custom):
    """Five pods in two roles are a gang of five."""
    item = custom("PodGroup", {"minTaskMember": {"w": 4, "m": 1}}, namespace="a")
    assert wire.read("podgroups", item).min_member == 5
    item["spec"]["minTaskMember"] = {"w": 0}
    assert wire.read("podgroups", item).min_member == 1


PARENT = "spec.subGroups[].parent"
NESTED = {
    "subGroups": [
        {"name": "zone", "topology": {"required": "zone"}, "minMember": 1},
        {"name": "s0", "parent": "zone", "minMember": 2, "topology": {"required": "rack"}},
        {"name": "s1", "parent": "zone", "minMember": 3},
    ]
}
CHAIN = [
    {"name": name, "parent": above} if above else {"name": name}
    for name, above in zip("abcde", ("", "a", "b", "c", "d"), strict=True)
]


def test_sub_groups_in_a_sub_group(wire, custom):
    """Those that pods name have minima of pods, the one around them of sub-groups: all of them."""
    read = wire.read("podgroups", custom("PodGroup", NESTED, namespace="a"))
    assert read.sub_groups == (
        SubGroup("zone", 0, TopologyRequest(required="zone"), min_sub_groups=2),
        SubGroup("s0", 2, TopologyRequest(required="rack"), "zone"),
        SubGroup("s1", 3, TopologyRequest(), "zone"),
    )
    assert read.min_sub_groups == 1


@pytest.mark.parametrize(
    ("spec", "field", "says"),
    [
        ({"minMember": 0}, "spec.minMember", ">= 1"),
        ({"minMember": 10_001}, "spec.minMember", "<= 10000"),
        ({"minMember": "four"}, "spec.minMember", "got str"),
        ({"minMember": 10**30}, "spec.minMember", "10000"),
        ({"minMember": 2, "minTaskMember": {"w": 3}}, "spec.minTaskMember", "adds up to 3"),
        ({"minTaskMember": {"w": 9999, "v": 9999}}, "spec.minTaskMember", "adds up to 19,998"),
        ({"minTaskMember": {"w": -1}}, "spec.minTaskMember[...]", ">= 0"),
        ({"subGroups": [{"name": "a"}, {"name": "a"}]}, "spec.subGroups[].name", "twice"),
        ({"subGroups": [{"name": ""}]}, "spec.subGroups[].name", "empty"),
        ({"subGroups": [{}]}, "spec.subGroups[]", "name"),
        ({"minSubGroups": 1}, "spec.minSubGroups", "1 of 0"),
        (NESTED | {"minSubGroups": 2}, "spec.minSubGroups", "2 of 1"),
        ({"subGroups": [{"name": "a", "parent": "b"}]}, PARENT, "'b' of 'a' is no sub-group"),
        ({"subGroups": [{"name": "a", "parent": "a"}]}, PARENT, "'a' in 'a'"),
        ({"subGroups": CHAIN}, PARENT, "'e' is 5 levels deep, and 4 are the most"),
        (
            {"subGroups": [{"name": "a", "minSubGroups": 2}, {"name": "b", "parent": "a"}]},
            PARENT,
            "'a' needs 2 sub-groups complete and holds 1",
        ),
        (
            {"subGroups": [{"name": "a", "minMember": 2}, {"name": "b", "parent": "a"}]},
            "spec.subGroups[].minMember",
            "minSubGroups",
        ),
        ({"topology": {"maxWait": "soon"}}, "spec.topology.maxWait", "not a duration"),
        ({"minResources": {"cpu": "x"}}, "spec.minResources", "not a quantity"),
        ({"preemptible": "no"}, "spec.preemptible", "got str"),
        ({"disruption": {"mode": "All"}}, "spec.disruption.mode", "none of Group, Pod, Extras"),
    ],
)
def test_a_pod_group_that_cannot_be_meant(wire, custom, spec, field, says):
    """Its author is told which field and why."""
    read = wire.read("podgroups", custom("PodGroup", spec, namespace="a"))
    assert isinstance(read, Rejected)
    assert read.field == field
    assert says in read.why
    assert (read.ours, read.generation, read.key) == (True, 2, ObjectKey("a", "g"))


def test_an_empty_queue(wire, custom):
    """Every field has its default."""
    read = wire.read("queues", custom("Queue", {}))
    assert (read.name, read.parent, read.weight, read.priority) == ("g", "root", 1, 0)
    assert (read.guarantee, read.deserved, read.capability) == (Resources(),) * 3
    assert (read.reclaimable, read.ordering, read.stop_policy) == (True, "Priority", "None")
    assert (read.min_runtime_ns, read.max_runtime_ns, read.max_wait_ns) == (0, 0, 0)
    assert (read.namespaces, read.node_pools, read.status) == (EVERYTHING, (), b"{}")


def test_a_full_queue(wire, custom):
    """Every field arrives; zero is a limit, absent is none."""
    item = custom(
        "Queue",
        {
            "parent": "org",
            "weight": 0,
            "priority": -5,
            "guarantee": {"resource": {"nvidia.com/gpu": "2"}},
            "deserved": {"nvidia.com/gpu": "4", "cpu": "1"},
            "capability": {"nvidia.com/gpu": "8", "amd.com/gpu": "0"},
            "reclaimable": False,
            "ordering": "StrictFifo",
            "stopPolicy": "Hold",
            "minRuntime": "1m",
            "maxRuntime": "2m",
            "maxWait": "3m",
            "namespaceSelector": {
                "matchLabels": {"team": "a"},
                "matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["b", "a"]}],
            },
            "nodePools": [{"name": "spot", "nodeSelector": {"k": "v"}, "capability": {"cpu": "2"}}],
        },
    )
    read = wire.read("queues", item)
    assert (read.parent, read.weight, read.priority) == ("org", 0, -5)
    assert read.guarantee == Resources.of({"nvidia.com/gpu": 2000})
    assert read.deserved == Resources.of({"nvidia.com/gpu": 4000, "cpu": 1000})
    assert "amd.com/gpu" in read.capability
    assert "cpu" not in read.capability
    assert (read.reclaimable, read.ordering, read.stop_policy) == (False, "StrictFifo", "Hold")
    assert (read.min_runtime_ns, read.max_runtime_ns, read.max_wait_ns) == (
        MINUTE,
        2 * MINUTE,
        3 * MINUTE,
    )
    assert read.namespaces == Selector(
        (Requirement("env", "NotIn", ("a", "b")), Requirement("team", "In", ("a",)))
    )
    assert read.node_pools == (
        NodePool(
            name="spot",
            node_selector=(("k", "v"),),
            deserved=Resources(),
            capability=Resources.of({"cpu": 2000}),
        ),
    )


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"parent": "g"}, "spec.parent"),
        ({"weight": -1}, "spec.weight"),
        ({"ordering": "Random"}, "spec.ordering"),
        ({"stopPolicy": "Now"}, "spec.stopPolicy"),
        ({"deserved": {"cpu": "2"}, "capability": {"cpu": "1"}}, "spec.deserved"),
        ({"guarantee": {"resource": {"cpu": 2}}, "deserved": {"cpu": 1}}, "spec.guarantee"),
        ({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}}, "selector"),
        ({"nodePools": [{"name": "a"}, {"name": "a"}]}, "spec.nodePools[].name"),
        ({"maxWait": "1"}, "spec.maxWait"),
    ],
)
def test_a_queue_that_cannot_be_meant(wire, custom, spec, field):
    """It is refused by name."""
    read = wire.read("queues", custom("Queue", spec))
    assert isinstance(read, Rejected)
    assert field.lower() in read.field.lower()
    assert read.ours


def test_topology(wire, custom):
    """Widest level first; a level without a name is none."""
    levels = [{"name": "zone", "nodeLabel": "z"}, {"name": "rack", "nodeLabel": "r"}]
    read = wire.read("topologies", custom("Topology", {"levels": levels}))
    assert read.levels == (("zone", "z"), ("rack", "r"))
    for bad in ([], [{"name": "a", "nodeLabel": ""}], levels + levels, levels * 5, None):
        refused = wire.read("topologies", custom("Topology", {"levels": bad}))
        assert isinstance(refused, Rejected)
        assert refused.field.startswith("spec.levels")


def test_namespace_and_priority_class(wire, custom):
    """A queue label, or Volcano's annotation; a number and a policy."""
    item = custom("Namespace", {})
    item["metadata"]["annotations"] = {"scheduling.volcano.sh/queue-name": "v"}
    assert wire.read("namespaces", item).queue == "v"
    item["metadata"]["labels"] = {"gpusched.io/queue": "q"}
    assert wire.read("namespaces", item).queue == "q"
    made = {**custom("PriorityClass", {}), "value": -7}
    read = wire.read("priorityclasses", made)
    assert (read.value, read.preemption_policy) == (-7, "PreemptLowerPriority")
    made["preemptionPolicy"] = "Never"
    assert wire.read("priorityclasses", made).preemption_policy == "Never"
    made["value"] = 2**31
    assert wire.read("priorityclasses", made).field == "value"


def test_disruption_budget(wire, custom):
    """No selector guards nothing, an empty one everything in its namespace."""
    item = custom("PodDisruptionBudget", {"maxUnavailable": 1}, namespace="a")
    read = wire.read("poddisruptionbudgets", item)
    assert (read.selector, read.disruptions_allowed) == (None, 0)
    item["spec"]["selector"] = {}
    item["status"] = {"disruptionsAllowed": 3, "currentHealthy": 5}
    read = wire.read("poddisruptionbudgets", item)
    assert (read.selector, read.disruptions_allowed) == (EVERYTHING, 3)


def test_job(wire, custom):
    """What the Job does not say, its pod template may say."""
    item = custom("Job", {}, namespace="a")
    read = wire.read("jobs", item)
    assert (read.parallelism, read.completions, read.indexed, read.suspended) == (
        1,
        None,
        False,
        False,
    )
    assert (read.queue, read.group, read.hints, read.succeeded) == ("", "", GangAnnotations(), 0)
    item["spec"] = {
        "parallelism": 4,
        "completions": 4,
        "completionMode": "Indexed",
        "suspend": True,
        "template": {
            "metadata": {
                "labels": {"gpusched.io/queue": "t", "gpusched.io/pod-group": "pg"},
                "annotations": {"gpusched.io/min-member": "2"},
            }
        },
    }
    item["status"] = {"succeeded": 1}
    read = wire.read("jobs", item)
    assert (read.parallelism, read.completions, read.indexed, read.suspended) == (4, 4, True, True)
    assert (read.queue, read.group, read.hints.min_member, read.succeeded) == ("t", "pg", 2, 1)
    item["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "own"}
    item["metadata"]["annotations"] = {"gpusched.io/topology-required": "rack"}
    read = wire.read("jobs", item)
    assert (read.queue, read.hints) == ("own", GangAnnotations(topology_required="rack"))
    item["metadata"]["annotations"] = {"gpusched.io/min-member": "many"}
    assert wire.read("jobs", item).field == "metadata.annotations[gpusched.io/min-member]"


@pytest.mark.parametrize(
    ("spec", "metadata", "deadline_s"),
    [
        ({}, {}, 0),
        ({"activeDeadlineSeconds": 90}, {}, 90),
        ({}, {"labels": {"kueue.x-k8s.io/max-exec-time-seconds": "60"}}, 60),
        ({}, {"annotations": {"kueue.x-k8s.io/max-exec-time-seconds": "60"}}, 60),
        ({"activeDeadlineSeconds": 90}, {"labels": {MAX_EXEC_LABEL: "600"}}, 90),
        ({}, {"labels": {MAX_EXEC_LABEL: "soon"}}, 0),
        ({}, {"labels": {MAX_EXEC_LABEL: "9" * 30}}, 0),
    ],
)
def test_when_a_job_is_ended(wire, custom, spec, metadata, deadline_s):
    """The sooner of its own deadline and Kueue's; what Kueue would refuse counts for nothing."""
    item = custom("Job", spec, namespace="a")
    item["metadata"].update(metadata)
    assert wire.read("jobs", item).deadline_s == deadline_s


def test_how_long_a_job_took(wire, custom):
    """From its start to its completion; a Job that is not complete took no time that is known."""
    item = custom("Job", {}, namespace="a")
    item["status"] = {"startTime": "2026-01-01T00:00:00Z"}
    assert wire.read("jobs", item).ran_s == 0
    item["status"]["completionTime"] = "2026-01-01T00:01:30Z"
    assert wire.read("jobs", item).ran_s == 90


def test_a_quota_tells_which_classes_it_limits_and_what_is_left(wire):
    """Scopes of both spellings; amounts in base units, by the quota's own names."""
    quota = {
        "metadata": {"name": "q", "namespace": "team", "uid": "u", "resourceVersion": "1"},
        "spec": {
            "hard": {"pods": "10"},
            "scopes": ["PriorityClass", "NotBestEffort"],
            "scopeSelector": {
                "matchExpressions": [
                    {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]},
                    {"scopeName": "Terminating", "operator": "Exists"},
                ]
            },
        },
        "status": {
            "hard": {"pods": "10", "requests.cpu": "4", "requests.nvidia.com/gpu": "8"},
            "used": {"pods": "12", "requests.cpu": "500m", "requests.nvidia.com/gpu": "3"},
        },
    }
    read = wire.read("resourcequotas", quota)
    assert read.classes == (QuotaScope("Exists"), QuotaScope("In", ("high",)))
    left = {"pods": 0, "requests.cpu": 3500, "requests.nvidia.com/gpu": 5000}
    assert dict(read.left) == left
    del quota["spec"]["scopes"], quota["spec"]["scopeSelector"]
    assert (
        wire.read("resourcequotas", quota).classes,
        wire.read("resourcequotas", quota).left,
    ) == (
        (),
        (),
    )
