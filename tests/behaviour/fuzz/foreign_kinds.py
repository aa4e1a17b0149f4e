"""Kinds of other projects as their CRDs define them, as far as the tests need them."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]
ANY: Obj = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TEXT: Obj = {"type": "string"}
NUMBER: Obj = {"type": "integer", "format": "int32"}
AMOUNTS: Obj = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
    },
}


def fields(**properties: Obj) -> Obj:
    """An object of just these fields: others are pruned."""
    return {"type": "object", "properties": properties}


def condition(*more: str) -> Obj:
    """A condition; fields that it does not have are pruned."""
    names = ("type", "status", "reason", "message", "lastTransitionTime", *more)
    return fields(**dict.fromkeys(names, TEXT))


def many(item: Obj) -> Obj:
    """A list."""
    return {"type": "array", "items": item}


VOLCANO = "scheduling.volcano.sh/v1beta1"
COSCHEDULING = "scheduling.x-k8s.io/v1alpha1"
SCHEMAS: dict[str, tuple[str, str, bool, Obj, Obj]] = {
    # plural.group: version, kind, namespaced and whether status is apart; spec; status
    "podgroups.scheduling.volcano.sh": (
        "v1beta1",
        "PodGroup",
        False,
        fields(
            minMember=NUMBER,
            minTaskMember={"type": "object", "additionalProperties": NUMBER},
            minResources=AMOUNTS,
            queue=TEXT,
            priorityClassName=TEXT,
            networkTopology=fields(mode=TEXT, highestTierAllowed=NUMBER, highestTierName=TEXT),
        ),
        fields(
            phase=TEXT,
            running=NUMBER,
            succeeded=NUMBER,
            failed=NUMBER,
            conditions=many(condition("transitionID")),
        ),
    ),
    "queues.scheduling.volcano.sh": (
        "v1beta1",
        "Queue",
        True,
        fields(
            weight=NUMBER,
            capability=AMOUNTS,
            deserved=AMOUNTS,
            guarantee=fields(resource=AMOUNTS),
            reclaimable={"type": "boolean"},
            parent=TEXT,
            priority=NUMBER,
        ),
        fields(
            state=TEXT,
            pending=NUMBER,
            inqueue=NUMBER,
            running=NUMBER,
            unknown=NUMBER,
            completed=NUMBER,
            allocated=AMOUNTS,
        ),
    ),
    "podgroups.scheduling.x-k8s.io": (
        "v1alpha1",
        "PodGroup",
        True,
        fields(minMember=NUMBER, minResources=AMOUNTS, scheduleTimeoutSeconds=NUMBER),
        fields(
            phase=TEXT,
            occupiedBy=TEXT,
            running=NUMBER,
            succeeded=NUMBER,
            failed=NUMBER,
            scheduleStartTime={"type": "string", "format": "date-time"},
        ),
    ),
    "podgroups.scheduling.run.ai": ("v2alpha2", "PodGroup", True, ANY, ANY),
    "queues.scheduling.run.ai": ("v2", "Queue", True, ANY, ANY),
    "jobsets.jobset.x-k8s.io": ("v1alpha2", "JobSet", True, ANY, ANY),
    "leaderworkersets.leaderworkerset.x-k8s.io": ("v1", "LeaderWorkerSet", True, ANY, ANY),
    "pytorchjobs.kubeflow.org": ("v1", "PyTorchJob", True, ANY, ANY),
    "mpijobs.kubeflow.org": ("v2beta1", "MPIJob", True, ANY, ANY),
    "rayclusters.ray.io": ("v1", "RayCluster", True, ANY, ANY),
}


def definition(name: str) -> Obj:
    """The CustomResourceDefinition of that name."""
    version, kind, apart, spec, status = SCHEMAS[name]
    plural, _, group = name.partition(".")
    served: Obj = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": fields(spec=spec, status=status)},
    }
    if apart:
        served["subresources"] = {"status": {}}
    annotations = {"api-approved.kubernetes.io": "a test"} if "k8s.io" in group else {}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "group": group,
            "scope": "Cluster" if kind == "Queue" else "Namespaced",
            "names": {"plural": plural, "kind": kind, "listKind": f"{kind}List"},
            "versions": [served],
        },
    }


async def install(w: Any, *names: str) -> None:
    """Make these kinds known to a running cluster."""
    for name in names:
        w.client.create("customresourcedefinitions.apiextensions.k8s.io", definition(name))
    for name in names:
        version, kind, *_ = SCHEMAS[name]
        group = name.partition(".")[2]
        await w.until(
            lambda group=group, version=version, kind=kind: w.client.kind_of(
                f"{group}/{version}", kind
            )
        )


def make(w: Any, resource: str, name: str, spec: Obj, **metadata: Any) -> Obj:
    """An object of a foreign kind, in the namespace default unless it is a queue."""
    version, kind, *_ = SCHEMAS[resource]
    where = {} if kind == "Queue" else {"namespace": "default"}
    made: Obj = w.client.create(
        resource,
        {
            "apiVersion": f"{resource.partition('.')[2]}/{version}",
            "kind": kind,
            "metadata": {"name": name, **where, **metadata},
            "spec": spec,
        },
    )
    return made
