"""What an audit finds in the objects of a cluster: pure, JSON in, findings with advice out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from gpusched.api.meta.identity import InvalidObject, parse_time
from gpusched.api.pod.decode import PODS
from gpusched.api.pod.pod import Pod
from gpusched.api.serializer.seal import KEY, Seal, is_seal_key, parse_seal
from gpusched.base.classes import frozen
from gpusched.base.errors import UndecodableObject
from gpusched.cli.lab.audit.queue_tree import queue_tree_findings
from gpusched.cli.lab.audit.records import record_findings
from gpusched.cli.lab.audit.wait_reasons import wait_reason_findings
from gpusched.testing import invariants
from gpusched.testing.invariants.model import (
    Finding,
    annotation_value,
    binding_term,
    is_ours,
    object_name,
)
from gpusched.topology.levels import DEFAULT_NAME, WELL_KNOWN

Json: TypeAlias = dict[str, Any]
_UNSEALED_NAMED: Final = 3
_LEASE_LATE: Final = 2.0
"""Lease durations without a renewal after which it is said that no process leads."""
_IN_A_WINDOW: Final = (
    "see whether the daemon may read reservations, and whether the Reservation or the gang's queue was "
    "changed in the window; delete the pods where the node is needed"
)
ADVICE: Final[Mapping[tuple[str, str], str]] = {
    ("I1", "Node"): "evict pods of it until they fit (kubectl get pods -A --field-selector "
    "spec.nodeName={name}), those without gpusched.io/plan first: they came past the scheduler",
    ("I2", "Node"): "delete one of the two pods; what made it makes another, which gets free slots",
    ("I2", "Pod"): "nothing is placed by such a claim; delete the pod, and install "
    "manifests/policies, which refuse it",
    ("I3", "PodGroup"): "the leader undoes it within 120 s: see whether the daemon runs and leads; "
    "else evict the pods that are bound",
    ("I4", "PodGroup"): "see whether labels of its nodes changed since; evict its pods to have it "
    "placed anew",
    (
        "I5",
        "Queue",
    ): "nothing that asks for it starts there until it holds what it may; change the queue, or "
    "wait for its gangs to end",
    ("I8", "Pod"): "two daemons bound at once, or the Lease was made anew: see that one Lease is "
    "used, and install manifests/policies/fence.yaml",
    ("I11", "Pod"): "delete the annotations or the pod; manifests/policies/annotations.yaml keeps "
    "others from writing them",
    ("I15", "Pod"): "see whether the daemon runs, leads and may patch pods/status",
    ("I15", "PodGroup"): "see whether the daemon runs, leads and may patch podgroups/status",
    (
        "I17",
        "Device",
    ): "two allocators gave it: see that no other scheduler allocates the same devices; "
    "delete one of the pods that the claims are reserved for",
    (
        "I17",
        "Pod",
    ): "its container cannot start; delete the pod, which is bound anew with its claims",
    ("I19", "PodGroup"): _IN_A_WINDOW,
    ("I19", "Pod"): _IN_A_WINDOW,
}
"""What to do, by invariant and kind of object."""
POLICIES: Final[Mapping[str, str]] = {
    "gpusched-annotations": "whoever may edit pods can write gpusched's annotations; they count "
    "only as far as seals show that gpusched wrote them",
    "gpusched-fence": "a daemon that was paused past its Lease may have one binding accepted late",
    "gpusched-node-name": "whoever may create pods can set spec.nodeName, past queues and quotas",
    "gpusched-own-jobs": "a stolen token of the daemon can change Jobs in more than suspend",
    "gpusched-own-pod-groups": "a stolen token of the daemon can change PodGroups",
    "gpusched-users": "every tenant may have its gangs counted for another user",
    "gpusched-priority": "a PodGroup may name a priority class that its author may not use",
    "gpusched-queues": "whoever may create PodGroups can submit to every queue that takes the "
    "namespace",
}
"""By the name of an admission policy of manifests/policies, what is not safe without it."""
_SAME_AS: Final = {"gpusched-fence-shards": "gpusched-fence"}
"""By a policy that stands in the place of another one (manifests/shards), that one."""


@frozen(kw_only=True)
class AuditedCluster:
    """What an audit looks at.

    Attributes:
        objects: by plural name, as the API lists them.
        now: seconds since the epoch; None where the objects are of the past.
        schedulers: names under which gpusched places pods.
        lease: the daemon's; None where there is none or it may not be read.
        policies: names of policies that are in force; None where that cannot be known.
        unread: what could not be looked at, one sentence each.
        messages: whether conditions have theirs; without, I15 cannot be judged.
    """

    objects: Mapping[str, Sequence[Json]]
    now: float | None
    schedulers: tuple[str, ...] = ("gpusched",)
    lease: Json | None = None
    policies: frozenset[str] | None = None
    unread: tuple[str, ...] = ()
    messages: bool = True


def find_violations(cluster: AuditedCluster) -> list[Finding]:
    """Every violation, sorted by invariant and object."""
    objects = {kind: [*filter(has_checked_shape, items)] for kind, items in cluster.objects.items()}
    pods, groups = objects.get("pods", []), objects.get("podgroups", [])
    objects["topologies"] = _in_force(objects.get("topologies", []), objects.get("nodes", []))
    found = [
        *invariants.findings(objects, schedulers=cluster.schedulers, now=cluster.now),
        *queue_tree_findings(objects.get("queues", ())),
        *wait_reason_findings(pods, groups, schedulers=cluster.schedulers, now=cluster.now),
        *(each for pod in pods for each in record_findings(pod, cluster.schedulers)),
        *_forged(pods, _seal(cluster.lease)),
        *_terms(pods, cluster.lease),
    ]
    if not cluster.messages:
        found = [each for each in found if each.invariant != "I15"]
    unique = {(each.invariant, each.kind, each.name, each.sentence): each for each in found}
    return [unique[key] for key in sorted(unique, key=_order)]


def _in_force(topologies: Sequence[Json], nodes: Sequence[Json]) -> list[Json]:
    """The one that counts; where there is none, what well-known labels of nodes tell."""
    by_name = {str(each["metadata"]["name"]): each for each in topologies}
    if by_name:
        return [by_name.get(DEFAULT_NAME) or by_name[min(by_name)]]
    there = {key for node in nodes for key in node["metadata"].get("labels") or ()}
    levels = [
        {"name": name, "nodeLabel": next(label for label in labels if label in there)}
        for name, labels in WELL_KNOWN
        if not there.isdisjoint(labels)
    ]
    return [{"metadata": {"name": DEFAULT_NAME}, "spec": {"levels": levels}}]


def _order(key: tuple[str, str, str, str]) -> tuple[int, str, str, str]:
    return int(key[0][1:]), *key[1:]


def advice(finding: Finding) -> str:
    """What to do about it."""
    said = ADVICE.get((finding.invariant, finding.kind), "see docs/audit.md")
    return said.format(name=finding.name)


def notes(cluster: AuditedCluster) -> list[str]:
    """What is no violation, and worth knowing: not looked at, not protected, not sealed."""
    told = list(cluster.unread)
    if cluster.policies is not None:
        known = {_SAME_AS.get(name, name) for name in cluster.policies}
        missing = sorted(POLICIES.keys() - known)
        told += [f"policy {name} is not in force: {POLICIES[name]}" for name in missing]
    seal = _seal(cluster.lease)
    if seal is not None:
        bare = [
            object_name(pod)
            for pod in filter(has_checked_shape, cluster.objects.get("pods", ()))
            if is_ours(pod) and annotation_value(pod, "slots") and not annotation_value(pod, "seal")
        ]
        if bare:
            shown = ", ".join(bare[:_UNSEALED_NAMED])
            more = len(bare) - _UNSEALED_NAMED
            told.append(
                f"{len(bare)} bound pods carry slots without a seal ({shown}"
                f"{f' and {more} more' if more > 0 else ''}): an earlier version bound them, or "
                "somebody else wrote them; nothing is given to others there until they end"
            )
    elif cluster.lease is not None:
        told.append("the Lease holds no key: slots cannot be told from forged ones by their seal")
    idle = _idle_s(cluster)
    if idle:
        told.append(f"nobody has renewed the Lease for {idle:.0f} s: no daemon leads")
    return told


def _idle_s(cluster: AuditedCluster) -> float:
    """Seconds without a leader; 0.0 where one leads or that cannot be known."""
    spec = (cluster.lease or {}).get("spec")
    if not isinstance(spec, dict) or cluster.now is None:
        return 0.0
    try:
        renewed = parse_time(str(spec.get("renewTime") or ""))
    except InvalidObject:
        return 0.0
    length = spec.get("leaseDurationSeconds")
    longest = _LEASE_LATE * length if isinstance(length, int) else 0.0
    idle = cluster.now - renewed
    return idle if renewed and longest and idle > longest else 0.0


# -- seals ---------------------------------------------------------------------------------
def _seal(lease: Json | None) -> Seal | None:
    """The seal whose key the Lease holds; None where there is none to be read."""
    meta = (lease or {}).get("metadata")
    found = (meta.get("annotations") or {}).get(KEY) if isinstance(meta, dict) else None
    return parse_seal(found) if isinstance(found, str) and is_seal_key(found) else None


def _forged(pods: Sequence[Json], seal: Seal | None) -> Iterator[Finding]:
    """Bound pods whose seal does not fit what they say they hold."""
    sealed = [pod for pod in pods if is_ours(pod) and annotation_value(pod, "seal")]
    if seal is None or not sealed:
        return
    body = json.dumps({"metadata": {"resourceVersion": "1"}, "items": sealed}).encode()
    try:
        read = PODS.decode_page(body).items
    except UndecodableObject:
        return
    for pod in read:
        if isinstance(pod, Pod) and not seal.fits_binding(pod):
            yield Finding(
                invariant="I2",
                kind="Pod",
                name=str(pod.key),
                sentence=f"pod {pod.key} carries a seal that does not fit its node, slots, plan "
                "and fence: somebody changed them after the binding, or wrote them",
            )


def _terms(pods: Sequence[Json], lease: Json | None) -> Iterator[Finding]:
    """Bound pods of a term that the Lease has not reached."""
    spec = (lease or {}).get("spec")
    newest = (spec.get("leaseTransitions") or 0) if isinstance(spec, dict) else None
    if not isinstance(newest, int):
        return
    for pod in pods:
        term = binding_term(annotation_value(pod, "fence"))
        if is_ours(pod) and term > newest:
            name = object_name(pod)
            yield Finding(
                invariant="I8",
                kind="Pod",
                name=name,
                sentence=f"pod {name} was bound in term {term}, and the Lease is in term {newest}",
            )


# -- objects that can be looked at -----------------------------------------------------------
def has_checked_shape(item: Json) -> bool:
    """Whether it has the shape that its schema asks for, as far as checks read it.

    A CRD may be laxer than ours, and what a snapshot holds may have been edited.
    """
    meta, spec = item.get("metadata"), item.get("spec", {})
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str):
        return False
    if not _texts(meta.get("labels")) or not _texts(meta.get("annotations")):
        return False
    status = item.get("status") or {}
    if not isinstance(spec, dict) or not isinstance(status, dict):
        return False
    if not _objects(status.get("conditions")):
        return False
    return _pod_like(spec) and _group_like(spec) and _queue_like(spec)


def _pod_like(spec: Json) -> bool:
    levels = spec.get("levels")
    return (
        all(_objects(spec.get(part)) for part in ("containers", "initContainers"))
        and _objects(levels)
        and all(_texts(each) and {"name", "nodeLabel"} <= each.keys() for each in levels or ())
    )


def _group_like(spec: Json) -> bool:
    minimum = spec.get("minMember", 1)
    parts = spec.get("subGroups")
    return (
        isinstance(minimum, int)
        and _objects(parts)
        and all(isinstance(part.get("name"), str) for part in parts or ())
        and all(isinstance(each.get("topology") or {}, dict) for each in (spec, *(parts or ())))
    )


def _queue_like(spec: Json) -> bool:
    parts = ("capability", "deserved", "guarantee", "overhead")
    return all(isinstance(spec.get(part) or {}, dict) for part in parts)


def _texts(value: Any) -> bool:
    return value is None or (
        isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
    )


def _objects(value: Any) -> bool:
    return value is None or (
        isinstance(value, list) and all(isinstance(each, dict) for each in value)
    )
