"""The API objects of a case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs

from tests.behaviour.notation.model import Amount, Case, CaseGang, CaseNode, CasePods, CaseQueue

Obj = dict[str, Any]
NAMESPACE: Final = "default"
GROUP: Final = "scheduling.gpusched.io"
GROUP_LABEL: Final = "gpusched.io/pod-group"
SUB_GROUP_LABEL: Final = "gpusched.io/sub-group"
ROLE_LABEL: Final = "gpusched.io/role"
INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
HOLD: Final = "gpusched.io/case"
"""Finalizer of pods that a case wants to be long in going."""
GATE: Final = "gpusched.io/case"
_FOREVER: Final = "1000h"


def node(made: CaseNode) -> Obj:
    """A fake node that offers what the case says."""
    amounts = {**made.offers.quantities(), "pods": str(made.pods)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": made.name,
            "labels": {"kubernetes.io/hostname": made.name, **made.labels},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def queue(made: CaseQueue) -> Obj:
    """A Queue with what the case states and nothing else."""
    spec: Obj = {}
    for key, amount in (("deserved", made.deserved), ("capability", made.capability)):
        if amount != Amount():
            spec[key] = amount.quantities()
    if made.guarantee != Amount():
        spec["guarantee"] = {"resource": made.guarantee.quantities()}
    stated = {
        "parent": made.parent,
        "ordering": made.ordering,
        "stopPolicy": made.stop,
        "weight": made.weight,
        "priority": made.priority,
        "reclaimable": made.reclaimable,
        "minRuntime": _duration(made.min_runtime_s),
        "maxRuntime": _duration(made.max_runtime_s),
        "maxWait": _duration(made.max_wait_s),
    }
    spec |= {key: value for key, value in stated.items() if value not in {"", None}}
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": made.name},
        "spec": spec,
    }


def topology(case: Case) -> Obj:
    """The levels of the case; a level's name is the label's."""
    levels = [{"name": label, "nodeLabel": label} for label in case.levels]
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "default"},
        "spec": {"levels": [*levels, {"name": "host", "nodeLabel": "kubernetes.io/hostname"}]},
    }


def priorities(case: Case) -> Iterator[Obj]:
    """A PriorityClass for each priority that the case uses."""
    used = {gang.priority for gang in case.gangs}
    used |= {pods.priority for gang in case.gangs for pods in gang.pods if pods.priority}
    for value in sorted(used):
        yield _priority(value, "")
        if any(gang.priority == value and _never(gang) for gang in case.gangs):
            yield _priority(value, "Never")


def _never(gang: CaseGang) -> bool:
    return gang.never_preempts or any(pods.never_preempts for pods in gang.pods)


def _priority(value: int, policy: str) -> Obj:
    made: Obj = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": f"p{value}{policy.lower()}"},
        "value": value,
    }
    return {**made, "preemptionPolicy": policy} if policy else made


def group(gang: CaseGang) -> Obj:
    """The PodGroup of a gang."""
    spec: Obj = {
        "queue": gang.queue,
        "minMember": gang.needed,
        "priorityClassName": _class(gang.priority, never=gang.never_preempts),
        "preemptible": gang.may_be_evicted,
    }
    if gang.sub_groups:
        spec["subGroups"] = [
            {"name": name, "minMember": least} for name, least in gang.sub_groups.items()
        ]
        if gang.sub_required:
            for part in spec["subGroups"]:
                part["topology"] = {"required": gang.sub_required}
    if gang.min_sub_groups is not None:
        spec["minSubGroups"] = gang.min_sub_groups
    if gang.roles:
        spec["minTaskMember"] = dict(gang.roles)
    wish = {
        "required": gang.required,
        "preferred": gang.preferred,
        "maxWait": _duration(gang.wait_s),
    }
    disruption = {
        "mode": "Group" if gang.whole else "Extras" if gang.only_extras else "",
        "checkpointInterval": _duration(gang.checkpoint_s),
    }
    for key, parts in (("topology", wish), ("disruption", disruption)):
        if any(parts.values()):
            spec[key] = {name: text for name, text in parts.items() if text}
    times = {
        "minRuntime": gang.min_runtime_s,
        "expectedDuration": gang.walltime_s,
        "scheduleTimeout": gang.timeout_s,
    }
    spec |= {key: _duration(seconds) for key, seconds in times.items() if seconds}
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": gang.name, "namespace": NAMESPACE},
        "spec": spec,
    }


def _duration(seconds: int) -> str:
    return f"{seconds}s" if seconds else ""


def budget(gang: CaseGang) -> Obj:
    """The PodDisruptionBudget that keeps so many pods of a gang."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": gang.name, "namespace": NAMESPACE},
        "spec": {
            "minAvailable": gang.keep,
            "selector": {"matchLabels": {GROUP_LABEL: gang.name}},
        },
    }


@attrs.frozen
class Member:
    """Which pod of a case another one is, or replaces: its gang, kind and number."""

    gang: CaseGang
    kind: CasePods
    index: int

    def again(self) -> Member:
        """The same as a waiting pod."""
        return Member(self.gang, attrs.evolve(self.kind, node="", count=1), self.index)


def members(gang: CaseGang) -> Iterator[Member]:
    """The pods of a gang, numbered over all their kinds."""
    number = 0
    for kind in gang.pods:
        for _ in range(kind.count):
            yield Member(gang, kind, number)
            number += 1


def pod(member: Member, *, name: str = "", owned: bool = False) -> Obj:
    """One pod, bound already when its kind says so; named by gang and number unless told.

    Args:
        member: of which gang, and of what kind.
        name: of the pod.
        owned: whether it names a controller, of a kind that the cluster does not serve.
    """
    gang, kind = member.gang, member.kind
    asks = (kind.asks or gang.asks).quantities()
    gpu = {key: amount for key, amount in asks.items() if "/" in key}
    labels = {GROUP_LABEL: gang.name}
    if kind.part:
        labels[ROLE_LABEL if gang.roles else SUB_GROUP_LABEL] = kind.part
    if gang.ranked:
        labels[INDEX_LABEL] = str(member.index)
    metadata: Obj = {
        "name": name or f"{gang.name}-{member.index}",
        "namespace": NAMESPACE,
        "labels": labels,
        "annotations": {"gpusched.io/run-for": _duration(gang.lasts_s) or _FOREVER},
    }
    priority = gang.priority if kind.priority is None else kind.priority
    spec: Obj = {
        "schedulerName": "gpusched",
        "restartPolicy": "Never",
        "priorityClassName": _class(priority, never=gang.never_preempts or kind.never_preempts),
        "containers": [
            {"name": "c", "image": "i", "resources": {"requests": asks, "limits": gpu}},
        ],
    }
    if gang.node_labels:
        spec["nodeSelector"] = dict(gang.node_labels)
    if (affinity := _affinity(gang)) != {}:
        spec["affinity"] = affinity
    if owned:
        metadata["ownerReferences"] = [
            {
                "apiVersion": "example.org/v1",
                "kind": "Crew",
                "name": gang.name,
                "uid": f"crew-{gang.name}",
                "controller": True,
            }
        ]
    asked = kind.asks or gang.asks
    if asked.share:
        metadata["annotations"]["gpu-fraction"] = asked.share
    if asked.share_mib:
        metadata["annotations"]["gpu-memory"] = str(asked.share_mib)
    if kind.node and kind.slots:
        metadata["annotations"]["gpusched.io/slots"] = kind.slots
    if kind.leaving or kind.slow:
        metadata["finalizers"] = [HOLD]
    if kind.gated:
        spec["schedulingGates"] = [{"name": GATE}]
    if kind.node:
        spec["nodeName"] = kind.node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _class(priority: int, *, never: bool) -> str:
    return f"p{priority}never" if never else f"p{priority}"


def _affinity(gang: CaseGang) -> Obj:
    made: Obj = {}
    if gang.on_nodes:
        term = {
            "key": "kubernetes.io/hostname",
            "operator": "In",
            "values": list(gang.on_nodes),
        }
        made["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [term]}]
            }
        }
    if gang.apart:
        made["podAntiAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {GROUP_LABEL: gang.name}},
                }
            ]
        }
    return made
