"""The API objects that steps make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpusched.api.meta.gpu_resources import DEFAULT_GPU_RESOURCES

Obj = dict[str, Any]
NAMESPACE: Final = "default"
GROUP: Final = "scheduling.gpusched.io"
GROUPS: Final = f"podgroups.{GROUP}"
QUEUES: Final = f"queues.{GROUP}"
TOPOLOGIES: Final = f"topologies.{GROUP}"
JOBS: Final = "jobs.batch"
BUDGETS: Final = "poddisruptionbudgets.policy"
PRIORITIES: Final = "priorityclasses.scheduling.k8s.io"
CLAIMS: Final = "resourceclaims.resource.k8s.io"
SLICES: Final = "resourceslices.resource.k8s.io"
LEASES: Final = "leases.coordination.k8s.io"
GROUP_LABEL: Final = "gpusched.io/pod-group"
GATE: Final = "gpusched.io/chaos"
GPU: Final = DEFAULT_GPU_RESOURCES.main.name
CARD: Final = "cards.example.com/card"
"""Resource that a class of whole cards stands for."""


def node(args: Mapping[str, Any]) -> Obj:
    """Manifest of a fake node."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "40", GPU: str(args["gpus"])}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": args["name"],
            "labels": {"kubernetes.io/hostname": args["name"], "rack": args.get("rack", "r0")},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def queue(args: Mapping[str, Any]) -> Obj:
    """A Queue with amounts of GPUs."""
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": args["name"]},
        "spec": queue_spec(args),
    }


def queue_spec(args: Mapping[str, Any]) -> Obj:
    """What a step says of a queue."""
    spec: Obj = {
        key: args[key]
        for key in ("parent", "weight", "stopPolicy", "reclaimable", "ordering")
        if key in args
    }
    for key in ("deserved", "capability"):
        if key in args:
            spec[key] = None if args[key] is None else {GPU: str(args[key])}
    return spec


def topology() -> Obj:
    """Manifest of a Topology with racks and hosts."""
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "default"},
        "spec": {
            "levels": [
                {"name": "rack", "nodeLabel": "rack"},
                {"name": "host", "nodeLabel": "kubernetes.io/hostname"},
            ]
        },
    }


def priority(args: Mapping[str, Any]) -> Obj:
    """Manifest of a PriorityClass."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": args["name"]},
        "value": args["value"],
    }


def budget(args: Mapping[str, Any]) -> Obj:
    """A PodDisruptionBudget over the pods of one gang."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": args["gang"], "namespace": NAMESPACE},
        "spec": {
            "minAvailable": args["keep"],
            "selector": {"matchLabels": {GROUP_LABEL: args["gang"]}},
        },
    }


def group(args: Mapping[str, Any]) -> Obj:
    """The PodGroup of a gang."""
    spec: Obj = {"queue": args.get("queue", "default"), "minMember": args["min"]}
    if args.get("priority"):
        spec["priorityClassName"] = args["priority"]
    if args.get("preemptible") is False:
        spec["preemptible"] = False
    if args.get("rack"):
        spec["topology"] = {args["rack"]: "rack"}
    subs = [role for role in args["roles"] if role.get("sub")]
    if subs:
        spec["subGroups"] = [
            {"name": role["name"], "minMember": role["count"], **_role_topology(role)}
            for role in subs
        ]
    elif args.get("tasks"):
        spec["minTaskMember"] = {role["name"]: role["count"] for role in args["roles"]}
    if args.get("walltime"):
        spec["expectedDuration"] = f"{args['walltime']}s"
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": args["name"], "namespace": NAMESPACE},
        "spec": spec,
    }


def _role_topology(role: Mapping[str, Any]) -> Obj:
    return {"topology": {"required": role["sub"]}} if role["sub"] is not True else {}


def role_claims(role: Mapping[str, Any]) -> list[Obj]:
    """Claims of a role's pods for devices: ``claim`` names a template, ``named`` a claim."""
    found: list[Obj] = []
    if role.get("claim"):
        found.append({"name": "own", "resourceClaimTemplateName": role["claim"]})
    if role.get("named"):
        found.append({"name": "named", "resourceClaimName": role["named"]})
    return found


def pod_parts(gang: Mapping[str, Any], role: Mapping[str, Any]) -> tuple[Obj, Obj]:
    """Metadata without a name, and spec, of a pod of a role."""
    labels = {GROUP_LABEL: gang["name"]} if gang.get("grouped", True) else {}
    if role.get("sub"):
        labels["gpusched.io/sub-group"] = role["name"]
    labels["gpusched.io/role"] = role["name"]
    notes = {"gpusched.io/run-for": f"{gang.get('lasts', 360_000)}s"}
    if gang.get("stops"):
        notes["gpusched.io/stop-after"] = f"{gang['stops']}s"
    limits: Obj = {GPU: str(role["gpus"])} if role.get("gpus") else {}
    if role.get("cards"):
        limits[CARD] = str(role["cards"])
    if role.get("share"):
        notes["gpusched.io/gpu-fraction"] = str(role["share"])
    spec: Obj = {
        "schedulerName": "gpusched",
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "c",
                "image": "i",
                "resources": {
                    "limits": limits,
                    "requests": {"cpu": role.get("cpu", "1"), **limits},
                },
            }
        ],
    }
    if claims := role_claims(role):
        spec["resourceClaims"] = claims
    if gang.get("priority"):
        spec["priorityClassName"] = gang["priority"]
    if gang.get("stops"):
        spec["terminationGracePeriodSeconds"] = int(gang["stops"]) + 1
    if gang.get("gated"):
        spec["schedulingGates"] = [{"name": GATE}]
    return {"labels": labels, "annotations": notes}, spec


def pod(gang: Mapping[str, Any], role: Mapping[str, Any], name: str) -> Obj:
    """A pod that no controller makes again."""
    metadata, spec = pod_parts(gang, role)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, **metadata},
        "spec": spec,
    }


def job(gang: Mapping[str, Any], role: Mapping[str, Any], name: str) -> Obj:
    """The Job that keeps the pods of a role."""
    metadata, spec = pod_parts(gang, role)
    about: Obj = {"name": name, "namespace": NAMESPACE, "labels": {}}
    if not gang.get("grouped", True):
        about["labels"]["gpusched.io/queue"] = gang.get("queue", "default")
    made: Obj = {
        "parallelism": role["count"],
        "completions": role["count"],
        "backoffLimit": 1000,
        "template": {"metadata": metadata, "spec": spec},
    }
    if gang.get("suspended"):
        made["suspend"] = True
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": made}


def foreign(args: Mapping[str, Any]) -> Obj:
    """A pod of another scheduler, bound already."""
    limits = {GPU: str(args["gpus"])} if args.get("gpus") else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": args["name"],
            "namespace": NAMESPACE,
            "annotations": {"gpusched.io/run-for": f"{args.get('lasts', 360_000)}s"},
        },
        "spec": {
            "nodeName": args["node"],
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "resources": {"limits": limits, "requests": {"cpu": "1", **limits}},
                }
            ],
        },
    }
