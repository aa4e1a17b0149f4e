"""Why a gang can never start: a smallest set of what it asks for that no empty cluster can give at once.

The set is found by deletion: everything that the gang asks for is there at first, and what can be taken off
while the rest still cannot be given is taken off (Chinneck and Dravnieks, 1991, for infeasible
linear programs; every member of what is left is needed).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from gpusched.advice.start_answer import start_answer
from gpusched.advice.trial import TrialCluster, edit_to
from gpusched.advice.workload import Workload, find_workload
from gpusched.api.meta.identity import ObjectKey
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.engine.objects import Obj, key_of

_DEMANDS_MAX: Final = 64
_NO_PODS: Final = frozenset({"PodGroup", "Queue"})
"""Kinds whose spec is none of a pod."""
_LIMITS: Final = ("capability", "userLimits", "nodePools")


@frozen
class Contradiction:
    """Why a gang can never start as it is, on these nodes and under these limits.

    Attributes:
        demands: what cannot hold together, one phrase each; each is needed for the contradiction.
        message: as the daemon says it of the empty cluster.
    """

    demands: tuple[str, ...]
    message: str

    @property
    def sentence(self) -> str:
        """The whole of it."""
        if len(self.demands) == 1:
            return f"never, even on an empty cluster: {self.demands[0]} cannot be given"
        said = ", ".join(self.demands[:-1]) + f" and {self.demands[-1]}"
        return f"never, even on an empty cluster: {said} cannot hold together"


@frozen
class _Demand:
    """One thing that a gang asks for.

    Attributes:
        title: in a sentence.
        drop: the manifest of a pod or a group without it.
    """

    title: str
    drop: Callable[[Obj], Obj]


def find_contradiction(trial: TrialCluster, gang: Gang) -> Contradiction | None:
    """Why a gang does not even start on the empty cluster.

    Returns:
        None where it would start there, or where nothing of what it asks for explains that it would
        not.
    """
    workload = find_workload(trial, gang).as_pod_group(gang)
    if not workload.pods:
        return None
    limiting, keeping = _limiting_queues(trial, gang), _keeping_queues(trial, gang)
    empty = _EmptyCluster(trial, workload, [*limiting, *keeping])
    answer = empty.message_without(())
    if answer is None:
        return None
    demands = [
        *map(_of_guarantee, keeping), *_demands(workload, gang),
        *(each for queue in limiting for each in _limits_of(queue)),
    ][:_DEMANDS_MAX]  # fmt: skip
    if empty.message_without(demands) is not None:
        return None
    kept = list(demands)
    for each in demands:
        fewer = [other for other in kept if other is not each]
        dropped = [other for other in demands if other not in fewer]
        if empty.message_without(dropped) is not None:
            kept = fewer
    return Contradiction(tuple(each.title for each in kept), answer)


class _EmptyCluster:
    """The cluster with nothing in it but one gang, its nodes and its queues' limits."""

    def __init__(self, trial: TrialCluster, workload: Workload, queues: Sequence[Obj]) -> None:
        self._trial = trial.emptied({key_of(pod) for pod in workload.pods})
        self._workload = workload
        self._queues = queues

    def message_without(self, dropped: Sequence[_Demand]) -> str | None:
        """Why the gang does not start without these demands; None where it does."""
        edits = [
            *self._workload.rewritten(lambda obj: _without(obj, dropped)),
            *(edit_to(_without(obj, dropped)) for obj in self._queues),
        ]
        with self._trial.changed(edits):
            gang = self._workload.key
            answer = start_answer(self._trial.decide(among=(gang,), evict=False), gang)
        return None if answer.starts else answer.message


def _limiting_queues(trial: TrialCluster, gang: Gang) -> list[Obj]:
    """Queues on its path that limit what all of it, or each user, may have, the leaf first."""
    leaf = trial.take_snapshot().queues.get(gang.queue)
    found = (
        trial.objects.get("queues", ObjectKey("", name)) for name in (leaf.path if leaf else ())
    )
    return [obj for obj in found if obj is not None and any(map(obj["spec"].get, _LIMITS))]


def _keeping_queues(trial: TrialCluster, gang: Gang) -> list[Obj]:
    """Queues on no path of its own for which something is kept free."""
    tree = trial.take_snapshot().queues
    leaf = tree.get(gang.queue)
    above = leaf.path if leaf is not None else ()
    names = [name for name, node in tree.queues.items() if node.guarantee and name not in above]
    found = (trial.objects.get("queues", ObjectKey("", name)) for name in names)
    return [obj for obj in found if obj is not None]


def _limits_of(queue: Obj) -> Iterator[_Demand]:
    if queue["spec"].get("capability"):
        yield _of_queue(queue, "capability", queue["spec"]["capability"])
    if queue["spec"].get("userLimits"):
        name = queue["metadata"]["name"]
        yield _Demand(f"what queue {name} lets its users have", _queue_dropper(name, "userLimits"))
    if queue["spec"].get("nodePools"):
        name = queue["metadata"]["name"]
        yield _Demand(f"limits of node pools of queue {name}", _queue_dropper(name, "nodePools"))


def _of_guarantee(queue: Obj) -> _Demand:
    return _of_queue(queue, "guarantee", queue["spec"]["guarantee"].get("resource") or {})


def _of_queue(queue: Obj, field: str, amounts: Mapping[str, Any]) -> _Demand:
    name = queue["metadata"]["name"]
    limits = ", ".join(f"{value} {each}" for each, value in sorted(amounts.items()))
    return _Demand(f"the {field} of queue {name} ({limits})", _queue_dropper(name, field))


def _queue_dropper(name: str, field: str) -> Callable[[Obj], Obj]:
    def drop(obj: Obj) -> Obj:
        if obj.get("kind") != "Queue" or obj["metadata"]["name"] != name:
            return obj
        return {**obj, "spec": {key: value for key, value in obj["spec"].items() if key != field}}

    return drop


def _without(obj: Obj, dropped: Sequence[_Demand]) -> Obj:
    for each in dropped:
        obj = each.drop(obj)
    return obj


def _demands(workload: Workload, gang: Gang) -> Iterator[_Demand]:
    """What a gang asks for, in the order in which it is taken off: what is seldom the cause first."""
    pods = [pod["spec"] for pod in workload.pods]
    yield from _of_placement(pods)
    for resource in sorted(_resources(pods)):
        amounts = {
            _request(container, resource) for spec in pods for container in _containers(spec)
        }
        said = ", ".join(sorted(amounts - {"", "0"})) or "0"
        yield _Demand(f"{said} {resource} in a container", _request_dropper(resource))
    for label, value in workload.node_labels.items():
        yield _Demand(f"nodes of {label}={value}", _label_dropper(label))
    if gang.topology.required:
        yield _Demand(f"one {gang.topology.required} for all pods", _topology_dropped)
    if gang.min_member > 1:
        yield _Demand(f"{gang.min_member} pods at once", _one_member)


def _of_placement(pods: Sequence[Obj]) -> Iterator[_Demand]:
    if any((spec.get("affinity") or {}).get("nodeAffinity") for spec in pods):
        yield _Demand("its node affinity", _affinity_dropper("nodeAffinity"))
    if any((spec.get("affinity") or {}).get("podAffinity") for spec in pods):
        yield _Demand("its affinity to other pods", _affinity_dropper("podAffinity"))
    if any((spec.get("affinity") or {}).get("podAntiAffinity") for spec in pods):
        yield _Demand("its anti-affinity between pods", _affinity_dropper("podAntiAffinity"))
    if any(spec.get("topologySpreadConstraints") for spec in pods):
        yield _Demand("its topology spread", _spec_dropper("topologySpreadConstraints"))
    if any(spec.get("volumes") for spec in pods):
        yield _Demand("its volumes", _spec_dropper("volumes"))
    if any(spec.get("resourceClaims") for spec in pods):
        yield _Demand("its device claims", _claims_dropped)
    yield _Demand("tolerations that leave out some nodes' taints", _all_tolerated)


def _containers(spec: Obj) -> list[Obj]:
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _amounts(container: Obj) -> Obj:
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _resources(pods: Sequence[Obj]) -> set[str]:
    return {name for spec in pods for each in _containers(spec) for name in _amounts(each)}


def _request(container: Obj, resource: str) -> str:
    amount = _amounts(container).get(resource)
    return "" if amount is None else str(amount)


# -- manifests without something -----------------------------------------------------------
def _with_pod_spec(obj: Obj, change: Callable[[Obj], Obj]) -> Obj:
    """A pod, or a Job's template, with another spec; other objects stay."""
    if obj.get("kind") in _NO_PODS:
        return obj
    return {**obj, "spec": change(obj.get("spec") or {})}


def _spec_dropper(field: str) -> Callable[[Obj], Obj]:
    def drop(spec: Obj) -> Obj:
        return {name: value for name, value in spec.items() if name != field}

    return lambda obj: _with_pod_spec(obj, drop)


def _affinity_dropper(field: str) -> Callable[[Obj], Obj]:
    def drop(spec: Obj) -> Obj:
        affinity = {
            name: value for name, value in (spec.get("affinity") or {}).items() if name != field
        }
        return {**spec, "affinity": affinity}

    return lambda obj: _with_pod_spec(obj, drop)


def _label_dropper(label: str) -> Callable[[Obj], Obj]:
    def drop(spec: Obj) -> Obj:
        chosen = {
            name: value for name, value in (spec.get("nodeSelector") or {}).items() if name != label
        }
        return {**spec, "nodeSelector": chosen}

    return lambda obj: _with_pod_spec(obj, drop)


def _request_dropper(resource: str) -> Callable[[Obj], Obj]:
    def lighter(container: Obj) -> Obj:
        resources = {
            part: {name: value for name, value in amounts.items() if name != resource}
            if isinstance(amounts, dict)
            else amounts
            for part, amounts in (container.get("resources") or {}).items()
        }
        return {**container, "resources": resources}

    def drop(spec: Obj) -> Obj:
        changed: dict[str, Any] = {}
        for part in ("containers", "initContainers"):
            if spec.get(part):
                changed[part] = [lighter(each) for each in spec[part]]
        return {**spec, **changed}

    return lambda obj: _with_pod_spec(obj, drop)


def _claims_dropped(obj: Obj) -> Obj:
    return _spec_dropper("resourceClaims")(_request_dropper("")(obj))


def _all_tolerated(obj: Obj) -> Obj:
    return _with_pod_spec(obj, lambda spec: {**spec, "tolerations": [{"operator": "Exists"}]})


def _topology_dropped(obj: Obj) -> Obj:
    if obj.get("kind") == "PodGroup":
        spec = {name: value for name, value in obj["spec"].items() if name != "topology"}
        return {**obj, "spec": spec}
    return _without_annotation(obj, "gpusched.io/topology-required")


def _one_member(obj: Obj) -> Obj:
    if obj.get("kind") == "PodGroup":
        spec = {name: obj["spec"][name] for name in ("queue", "topology", "priorityClassName")
                if name in obj["spec"]}  # fmt: skip
        return {**obj, "spec": {**spec, "minMember": 1}}
    return _with_annotation(obj, "gpusched.io/min-member", "1")


def _without_annotation(obj: Obj, name: str) -> Obj:
    if obj.get("kind") in _NO_PODS:
        return obj
    metadata = obj.get("metadata") or {}
    notes = {key: text for key, text in (metadata.get("annotations") or {}).items() if key != name}
    return {**obj, "metadata": {**metadata, "annotations": notes}}


def _with_annotation(obj: Obj, name: str, text: str) -> Obj:
    if obj.get("kind") in _NO_PODS:
        return obj
    metadata = obj.get("metadata") or {}
    notes = {**(metadata.get("annotations") or {}), name: text}
    return {**obj, "metadata": {**metadata, "annotations": notes}}
