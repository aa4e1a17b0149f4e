"""What is written in short is the same as the manifests that it stands for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpusched.lab.scenario.expansion.moments import unroll_timeline
from gpusched.lab.scenario.model.scenario import ApplyAct, Obj
from tests.lab.scenario.texts import scenario

CONTAINER = """\
    - name: worker
      image: busybox:1.37
      command: [sleep, %s]
      resources: %s
"""


def submitted(folder: Path, workload: str, *, around: str = "") -> list[Obj]:
    """The objects that one submission makes."""
    found = scenario(folder, f"{around}\ntimeline:\n- submit: {workload}\n")
    (moment,) = unroll_timeline(found)
    assert isinstance(moment.act, ApplyAct)
    return [each.obj for each in moment.act.manifests]


def documents(text: str) -> list[Any]:
    """YAML, document by document."""
    return list(yaml.safe_load_all(text))


QUEUES = "queues: [{name: a}]\npriorities: {high: 9}"
SHORT = {
    "a job": (
        "{name: train, pods: 4, gpus: 8, runFor: 10m}",
        """
        apiVersion: batch/v1
        kind: Job
        metadata: {name: train, namespace: default}
        spec:
          completionMode: Indexed
          completions: 4
          parallelism: 4
          template:
            metadata: {annotations: {gpusched.io/run-for: 10m}}
            spec:
              schedulerName: gpusched
              restartPolicy: Never
              containers:
              - name: worker
                image: busybox:1.37
                command: [sleep, "600"]
                resources: {requests: {cpu: "1", memory: 1Gi}, limits: {nvidia.com/gpu: "8"}}
        """,
    ),
    "a job of a queue": (
        """
          name: train
          queue: a
          priority: high
          namespace: team
          minMember: 1
          pods: 2
          cpu: 500m
          memory: 2Gi
          class: nightly
          deadline: 15m
          backoffLimit: 0
          preemptible: false
          minRuntime: 5m
          runFor: 90s
          expectedDuration: true
          topology: {required: rack, preferred: host}
          startAfter: 3s
          failChance: 0.5
          exitCode: 137
          failOnAttempt: 1,2
          labels: {x: y}
          annotations: {note: text}
          nodeSelector: {type: kwok}
          tolerations: [{operator: Exists}]
        """,
        """
        apiVersion: batch/v1
        kind: Job
        metadata:
          name: train
          namespace: team
          labels: {gpusched.io/queue: a, scenario.gpusched.io/class: nightly}
          annotations:
            gpusched.io/min-member: "1"
            gpusched.io/topology-required: rack
            gpusched.io/topology-preferred: host
            gpusched.io/expected-duration: 1m30s
            gpusched.io/preemptible: "false"
            gpusched.io/min-runtime: 5m
        spec:
          completionMode: Indexed
          completions: 2
          parallelism: 2
          activeDeadlineSeconds: 900
          backoffLimit: 0
          suspend: true
          template:
            metadata:
              labels: {scenario.gpusched.io/class: nightly, x: y}
              annotations:
                gpusched.io/start-after: 3s
                gpusched.io/fail-chance: "0.5"
                gpusched.io/exit-code: "137"
                gpusched.io/fail-on-attempt: 1,2
                gpusched.io/run-for: 1m30s
                note: text
            spec:
              schedulerName: gpusched
              restartPolicy: Never
              priorityClassName: high
              nodeSelector: {type: kwok}
              tolerations: [{operator: Exists}]
              containers:
              - name: worker
                image: busybox:1.37
                command: [sleep, "90"]
                resources: {requests: {cpu: 500m, memory: 2Gi}}
        """,
    ),
    "a deployment": (
        "{name: serve, kind: Deployment, pods: 3, gpus: 1, queue: a}",
        """
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: serve, namespace: default}
        spec:
          replicas: 3
          selector: {matchLabels: {scenario.gpusched.io/app: serve}}
          template:
            metadata: {labels: {scenario.gpusched.io/app: serve, gpusched.io/queue: a}}
            spec:
              schedulerName: gpusched
              restartPolicy: Always
              containers:
              - name: worker
                image: busybox:1.37
                command: [sleep, infinity]
                resources: {requests: {cpu: "1", memory: 1Gi}, limits: {nvidia.com/gpu: "1"}}
        """,
    ),
    "a share": (
        '{name: note, kind: Pod, fraction: "0.25", runFor: 30s}',
        """
        apiVersion: v1
        kind: Pod
        metadata:
          name: note
          namespace: default
          annotations: {gpusched.io/gpu-fraction: "0.25", gpusched.io/run-for: 30s}
        spec:
          schedulerName: gpusched
          restartPolicy: Never
          containers:
          - name: worker
            image: busybox:1.37
            command: [sleep, "30"]
            resources: {requests: {cpu: "1", memory: 1Gi}}
        """,
    ),
    "a slice": (
        "{name: note, kind: Pod, mig: 1g.5gb, slices: 2}",
        """
        apiVersion: v1
        kind: Pod
        metadata: {name: note, namespace: default}
        spec:
          schedulerName: gpusched
          restartPolicy: Never
          containers:
          - name: worker
            image: busybox:1.37
            command: [sleep, infinity]
            resources: {requests: {cpu: "1", memory: 1Gi}, limits: {nvidia.com/mig-1g.5gb: "2"}}
        """,
    ),
}


@pytest.mark.parametrize("case", SHORT)
def test_a_workload_in_short_is_its_manifest(case: str, tmp_path: Path) -> None:
    """Field by field what a user of Kubernetes would have written."""
    short, full = SHORT[case]
    assert submitted(tmp_path, short, around=QUEUES) == documents(full)


def test_a_group_with_roles_is_a_pod_group_and_its_pods(tmp_path: Path) -> None:
    """Minima of roles and sub-groups are added up; every pod says where it belongs."""
    group, *pods = submitted(
        tmp_path,
        """
          name: serve
          kind: PodGroup
          queue: a
          topology: {preferred: rack, maxWait: 5m}
          minSubGroups: 1
          roles:
          - {name: lead, gpus: 1, subGroup: p}
          - {name: work, pods: 3, minMember: 2, gpus: 4, cpu: 8, subGroup: p, topology: {required: host}}
          - {name: extra, pods: 2, minMember: 0}
        """,
        around=QUEUES,
    )
    assert group["spec"] == {
        "queue": "a",
        "minMember": 3,
        "minTaskMember": {"lead": 1, "work": 2, "extra": 0},
        "subGroups": [{"name": "p", "minMember": 3, "topology": {"required": "host"}}],
        "minSubGroups": 1,
        "topology": {"preferred": "rack", "maxWait": "5m"},
    }
    names = [pod["metadata"]["name"] for pod in pods]
    assert names == [
        "serve-lead-0", "serve-work-0", "serve-work-1", "serve-work-2", "serve-extra-0", "serve-extra-1",
    ]  # fmt: skip
    assert pods[1]["metadata"]["labels"] == {
        "gpusched.io/pod-group": "serve",
        "gpusched.io/role": "work",
        "gpusched.io/sub-group": "p",
    }
    (container,) = pods[1]["spec"]["containers"]
    assert container["resources"]["requests"]["cpu"] == "8"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "4"}


def test_a_tree_of_sub_groups_says_itself_what_has_to_start(tmp_path: Path) -> None:
    """Roles in it have no minimum of their own; sub-groups that hold others stand beside theirs."""
    group, *_ = submitted(
        tmp_path,
        """
          name: train
          kind: PodGroup
          roles:
          - {name: a, pods: 2, subGroup: s0}
          - {name: b, pods: 3, subGroup: s1, topology: {required: rack}}
          - {name: main}
          subGroups:
          - {name: all, minSubGroups: 1, topology: {required: zone}}
          - {name: s0, parent: all}
          - {name: s1, parent: all}
        """,
    )
    assert group["spec"] == {
        "minMember": 1,
        "minTaskMember": {"main": 1},
        "subGroups": [
            {"name": "s0", "minMember": 2, "parent": "all"},
            {"name": "s1", "minMember": 3, "topology": {"required": "rack"}, "parent": "all"},
            {"name": "all", "minSubGroups": 1, "topology": {"required": "zone"}},
        ],
    }


def test_nodes_and_queues_in_short(tmp_path: Path) -> None:
    """Domains are counted on from entry to entry, a bare number of a queue is GPUs."""
    found = scenario(
        tmp_path,
        """
        nodes:
        - {name: big, count: 3, gpus: 8, perRack: 2, product: H100}
        - {name: "small-{{ Index | add1 }}", count: 2, cpu: 4, perRack: 2, labels: {n: "{{ Index }}"}}
        queues:
        - {name: a, deserved: 8, capability: 16, guarantee: 4}
        - {name: b, parent: a, deserved: {cpu: 500m}, guarantee: {resource: {cpu: 1}}}
        priorities: {high: 1000}
        """,
    )
    *nodes, a, b, high = [each.obj for each in found.before]
    racks = [
        (node["metadata"]["name"], node["metadata"]["labels"]["gpusched.io/rack"]) for node in nodes
    ]
    assert racks == [
        ("big-0", "rack-0"), ("big-1", "rack-0"), ("big-2", "rack-1"),
        ("small-1", "rack-2"), ("small-2", "rack-2"),
    ]  # fmt: skip
    assert nodes[0]["metadata"]["labels"]["nvidia.com/gpu.product"] == "H100"
    assert nodes[4]["metadata"]["labels"]["n"] == "1"
    assert nodes[3]["status"]["capacity"] == {"cpu": "4", "memory": "1Ti", "pods": "110"}
    assert a["spec"] == {
        "deserved": {"nvidia.com/gpu": "8"},
        "capability": {"nvidia.com/gpu": "16"},
        "guarantee": {"resource": {"nvidia.com/gpu": "4"}},
    }
    assert b["spec"] == {
        "parent": "a", "deserved": {"cpu": "500m"}, "guarantee": {"resource": {"cpu": 1}},
    }  # fmt: skip
    assert (high["kind"], high["value"]) == ("PriorityClass", 1000)


def test_devices_of_nodes(tmp_path: Path) -> None:
    """They stand in an annotation of each node, and need the embedded cluster."""
    found = scenario(
        tmp_path,
        """
        nodes:
        - {name: a, devices: [{kind: gpu, count: 8}, {kind: nic, without: [eth1]}]}
        """,
    )
    annotation = found.before[0].obj["metadata"]["annotations"]["devcluster.gpusched.io/devices"]
    assert json.loads(annotation) == [
        {"kind": "gpu", "count": 8}, {"kind": "nic", "without": ["eth1"]},
    ]  # fmt: skip
    assert "devices of nodes need the embedded cluster" in found.embedded_only


def test_a_pool_is_written_out(tmp_path: Path) -> None:
    """A cluster that knows no NodePool can take its nodes."""
    found = scenario(
        tmp_path,
        """
        objects:
        - apiVersion: devcluster.gpusched.io/v1alpha1
          kind: NodePool
          metadata: {name: h100}
          spec:
            replicas: 2
            template:
              metadata: {name: "h-{{ Index }}"}
              status: {capacity: {cpu: 8}}
        """,
    )
    kinds = [(each.obj["kind"], each.obj["metadata"]["name"]) for each in found.before]
    assert kinds == [("Node", "h-0"), ("Node", "h-1")]
